"""Commits files to a table as the pipeline does, without Spark, and prints the number of each commit that ended.

python -m support.powercut.table_commits TABLES COMMITS
"""

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from karrot.history.delta_tables import DataFile
from karrot.pipeline.store.hadoop_filesystem import flush_files
from karrot.pipeline.store.table_files import Tables

TABLE = "commits"
NO_SPARK: Any = None
"""A place with a scheme of its own needs no Spark."""


def commit(tables: Tables, number: int) -> None:
    """Commit a file with one row. Each fifth commit replaces the file before."""
    place = Path(tables.directory.removeprefix("file:"), TABLE)
    file = f"batch_id=b-{number}.0/day=2025-05-11/part.parquet"
    (place / file).parent.mkdir(parents=True)
    pq.write_table(pa.table({"log_offset": [number]}), place / file)
    flush_files(NO_SPARK, f"file:{place}/batch_id=b-{number}.0")
    added = [DataFile.at(file, (place / file).stat().st_size, 1)]
    tables._commit(NO_SPARK, TABLE, added, lambda old: number % 5 == 0 and old.batch_id == f"b-{number - 1}")


def rows_after(commits: int) -> set[int]:
    """The rows after this number of commits."""
    return {number for number in range(commits) if number % 5 != 4 or number == commits - 1}


def stored(tables: Tables) -> set[int]:
    """The rows of the table. Raises `UnreadableTable`."""
    files = tables.files(NO_SPARK, TABLE)
    tables._require_whole(NO_SPARK, TABLE, files)
    place = Path(tables.directory.removeprefix("file:"), TABLE)
    return {pq.ParquetFile(place / file.path).read()["log_offset"][0].as_py() for file in files}


if __name__ == "__main__":
    store = Tables(f"file:{sys.argv[1]}")
    for number in range(int(sys.argv[2])):
        commit(store, number)
        for entry in Path(sys.argv[1], TABLE, "_delta_log").iterdir():  # older than a day: Delta deletes such entries
            os.utime(entry, (0, 0))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
