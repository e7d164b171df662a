"""Parquet tables by day: how they are read, replaced and compacted."""
