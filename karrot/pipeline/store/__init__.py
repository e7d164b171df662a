"""Reads, writes and compacts the Parquet tables (`table_files.Tables`), which are partitioned by day."""
