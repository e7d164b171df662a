"""Reads, writes and compacts the Parquet tables, which are partitioned by day."""
