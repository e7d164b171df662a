"""Marks a directory of tables with the version of its format, so that an older Karrot does not write newer tables."""

from typing import Final

import msgspec
from pyspark.sql import SparkSession

from karrot.pipeline.store.filesystem import read_text, write_text
from karrot.pipeline.store.table_files import Tables
from karrot.settings.storage_place import shown

FORMAT: Final = 1
"""The version of the tables' folders, files and columns. A change that an older Karrot would damage adds 1."""

_FILE: Final = "_format.json"


class NewerTables(RuntimeError):  # noqa: N818 (names the state of the tables)
    """A newer Karrot wrote the tables. The message says what to do."""


class _Mark(msgspec.Struct):
    format: int


def require_known_format(spark: SparkSession, tables: Tables) -> None:
    """Raise NewerTables if a newer Karrot wrote the tables. Mark tables that have no mark, or one without a version."""
    path = tables.path(_FILE)
    try:
        found = msgspec.json.decode(read_text(spark, path) or "", type=_Mark).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = 0
    if found > FORMAT:
        raise NewerTables(
            f"{shown(tables.directory)} has tables of format {found}, and this Karrot writes format {FORMAT}: a newer "
            "Karrot wrote them. Upgrade this Karrot, or give it other --tables."
        )
    if found < 1:
        write_text(spark, path, msgspec.json.encode(_Mark(FORMAT)).decode())
