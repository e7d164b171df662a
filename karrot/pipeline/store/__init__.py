"""Stores Parquet tables by day: reads, replaces and compacts them."""
