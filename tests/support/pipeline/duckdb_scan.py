"""Reads a table's newest version in DuckDB without its extension for Delta tables."""

from pathlib import Path

from support.pipeline.table_files import files_of


def scan(tables: Path, name: str) -> str:
    """Return what a query selects ``FROM``: the rows of a table, which has files, with the columns of its folders."""
    return f"read_parquet({files_of(tables, name)}, hive_partitioning = true)"
