"""Locates and reads the tables in their directory, replaces a batch or a day of a table, and finds changed days.

```
<tables>/events/day=2026-11-20/batch_id=3f0c9a1e-000004/part-….zstd.parquet      streamed: a folder for each batch
<tables>/lag_minute/day=2026-11-20/lag_minute.parquet                            derived: one sorted file per day
<tables>/lag_minute/day=2026-11-20/lag_minute-0830.parquet                       more files of a large day
```

Names that begin with ``.`` or ``_`` are not data: Spark, DuckDB, Athena and Trino ignore them.

Spark gives its files new names with every write. So the names of a day's files change when rows are added, rewritten or
removed. The note ``_derived.json`` holds a digest of each day's names, and the rules by which the days were derived. If
the names or the rules change, ``derive`` makes the day again.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final, Self

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from karrot.history.days_with_data import NOTE, Note, day_of, note_of
from karrot.pipeline.schemas_and_conversions import SORTED_BY, STREAMED, TABLES, columns_of, rows, with_day
from karrot.pipeline.store.hadoop_filesystem import (
    delete,
    exists,
    flush_files,
    listing,
    literal,
    local_path,
    newest_ms,
    place_for,
    plain_url,
    read_text,
    rename_over,
    write_text,
)
from karrot.settings.types import s3_url

_WRITER: Final = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # A cluster's default must not split the one file of a day.
    "maxRecordsPerFile": "0",
}
_STAGING, _BATCH_STAGING = ".staging", ".spark-staging-"
SOURCES: Final = ("events", "partitions")
"""The tables that ``ingest`` makes from events."""

WATCHED: Final = (*SOURCES, "commits", "members", "ends")
"""The tables from which other tables are derived."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables below one directory: a local path, or a URL of a file system that Hadoop supports (``s3a://…``).

    ``require`` raises an error if the tables must not be written any more (`karrot.pipeline.store.write_lease`).
    """

    directory: str
    require: Callable[[], object] = lambda: None

    @classmethod
    def at(cls, spark: SparkSession, place: str) -> Self:
        return cls(place_for(spark, place))

    def path(self, name: str, *below: str) -> str:
        return "/".join([self.directory.rstrip("/"), name, *below])

    def checkpoint(self, job: str) -> str:
        return self.path("_checkpoints", job)

    def read(
        self, spark: SparkSession, name: str, *, days: Iterable[date] | None = None, batches: bool = False
    ) -> DataFrame:
        """Read a table with the column ``day`` and, if ``batches``, ``batch_id``; only ``days``, if given.

        The result is empty if the table does not exist.
        """
        schema = with_day(TABLES[name])
        if batches:
            schema = schema.add("batch_id", "string")
        table = self.path(name)
        paths = [table] if days is None else [self.path(name, f"day={day.isoformat()}") for day in sorted(set(days))]
        there = [path for path in paths if exists(spark, path)]
        if not there:
            # The filter lets the optimizer see that the table is empty, and leave out the steps that depend on the
            # table.
            return spark.range(0).where(F.lit(False)).select(rows([], schema))
        reader = spark.read.schema(schema).option("basePath", table)
        return reader.parquet(*map(literal, there)).select(*columns_of(schema))

    def days(self, spark: SparkSession, name: str) -> list[date]:
        found = map(day_of, listing(spark, self.path(name)))
        return sorted(day for day in found if day is not None)

    def write_batch(self, df: DataFrame, name: str, batch_id: str) -> None:
        """Write one batch of a streamed table into its own folders; ``df`` has the schema's columns and ``day``.

        If the batch is written again, it overwrites its own files. On a local file system, a rename makes all rows of a
        day visible at once, and the rows are on the disk when the call returns. On an object store, the files of the
        batch appear one after the other.
        """
        self.require()
        columns = columns_of(with_day(STREAMED[name]))
        writer = df.select(*columns, F.lit(batch_id).alias("batch_id")).write.mode("overwrite").options(**_WRITER)
        # Only names get dictionaries: for numbers and timestamps, they cost time and space.
        plain = {
            f"parquet.enable.dictionary#{field.name}": "false"
            for field in STREAMED[name]
            if name in SOURCES and (field.name == "event_id" or not isinstance(field.dataType, StringType))
        }
        writer.options(partitionOverwriteMode="dynamic", **plain).partitionBy("day", "batch_id").parquet(
            self.path(name), compression="zstd"
        )
        if local := local_path(df.sparkSession, self.path(name)):
            for folder in local.glob(f"day=*/batch_id={batch_id}"):
                flush_files(df.sparkSession, str(folder))

    def rows_of_batch(self, spark: SparkSession, name: str, batch_id: str, days: Iterable[date]) -> int:
        places = [self.path(name, f"day={day.isoformat()}", f"batch_id={batch_id}") for day in sorted(set(days))]
        # Read the batch by its paths. A filter on the batch would list all files of the day.
        there = [literal(path) for path in places if exists(spark, path)]
        return spark.read.schema(STREAMED[name]).parquet(*there).count() if there else 0

    def drop_batch(self, spark: SparkSession, name: str, batch_id: str, days: Iterable[date]) -> None:
        """Delete a batch's files of these days, so that it can be written again with other rows or without any."""
        for day in days:
            self._drop(spark, name, f"day={day.isoformat()}", f"batch_id={batch_id}")

    def replace_days(self, df: DataFrame, name: str, days: Iterable[date]) -> None:
        """Replace days of a derived table by the rows of ``df``, as `replace_files` does. A day has one file."""
        self.replace_files(df, name, dict.fromkeys(days, f"{name}.parquet"))

    def replace_files(self, df: DataFrame, name: str, files: Mapping[date, str]) -> None:
        """Replace one file of each day by the rows of ``df``, which has the schema's columns and ``day``.

        A file without rows is deleted. Each file is replaced in one step, so a reader sees the old or the new file.
        """
        ordered = df.select(*columns_of(with_day(TABLES[name]))).repartition("day")
        with self._staged(ordered.sortWithinPartitions("day", *SORTED_BY[name]), name, "day") as staged:
            for day, file in sorted(files.items()):
                self._replace(df.sparkSession, name, f"day={day.isoformat()}", file, staged)

    def _replace(self, spark: SparkSession, name: str, day: str, file: str, staged: str) -> None:
        written = [entry for entry in listing(spark, f"{staged}/{day}") if entry.endswith(".parquet")]
        self.require()
        if written:
            (only,) = written
            rename_over(spark, f"{staged}/{day}/{only}", self.path(name, day, file))
        else:
            is_last = listing(spark, self.path(name, day)) in ([], [file])
            delete(spark, self.path(name, day) if is_last else self.path(name, day, file))

    def write_file(self, df: DataFrame, by: Iterable[str], *place: str) -> None:
        """Write all rows of ``df`` into one file, sorted, at a place below the tables, in one step."""
        with self._staged(df.repartition(1).sortWithinPartitions(*by), place[0]) as staged:
            (written,) = (entry for entry in listing(df.sparkSession, staged) if entry.endswith(".parquet"))
            self.require()
            rename_over(df.sparkSession, f"{staged}/{written}", self.path(*place))

    @contextmanager
    def _staged(self, rows: DataFrame, name: str, *by: str) -> Iterator[str]:
        """Write rows to a new path, yield the path, and delete what is left there."""
        path = self.path(_STAGING, f"{name}-{uuid.uuid4().hex}")
        try:
            rows.write.options(**_WRITER).partitionBy(*by).parquet(path, compression="zstd")
            yield path
        finally:
            delete(rows.sparkSession, path)

    def drop_other_files(self, spark: SparkSession, name: str, day: date) -> None:
        """Delete the files of a day of a derived table that are not the file of the whole day."""
        for file in listing(spark, self.path(name, f"day={day.isoformat()}")):
            if file != f"{name}.parquet" and file.endswith(".parquet"):
                self._drop(spark, name, f"day={day.isoformat()}", file)

    def drop_day(self, spark: SparkSession, name: str, day: date) -> None:
        self._drop(spark, name, f"day={day.isoformat()}")

    def _drop(self, spark: SparkSession, *place: str) -> None:
        self.require()
        delete(spark, self.path(*place))

    def sweep_staging(self, spark: SparkSession) -> None:
        """Delete files that killed derive and compact runs left. The caller must hold the ``derived`` lease."""
        delete(spark, self.path(_STAGING))

    def sweep_batches(self, spark: SparkSession, names: Iterable[str], *, before: datetime | None = None) -> None:
        """Delete what killed batches left in these tables, if it was written ``before`` a time.

        Without a time, the caller must hold the tables' lease.
        """
        for path in (self.path(name, entry) for name in names for entry in listing(spark, self.path(name))):
            if path.rpartition("/")[2].startswith(_BATCH_STAGING) and (
                before is None or newest_ms(spark, path) < before.timestamp() * 1_000
            ):
                delete(spark, path)


def sound(table: DataFrame) -> DataFrame:
    """Return the same table. Raises OSError if one of its files is empty: a power failure can leave empty files.

    Spark would read an empty file as no rows.
    """
    for url in table.inputFiles():
        path = Path(plain_url(url).removeprefix("file:"))
        with suppress(FileNotFoundError):  # the path is a URL, or compact has merged the file
            if path.stat().st_size == 0:
                cure = (
                    "Delete this file. If derive made it, also delete <tables>/_derived.json and run derive. If not, "
                    "run the command that made it, with a new --checkpoint."
                )
                raise OSError(f"{path} is empty, so it is damaged. {cure}")
    return table


def read_note(spark: SparkSession, tables: Tables) -> Note:
    """Read the note. If it is missing or damaged, return an empty note: ``derive`` then makes every day again."""
    try:
        text = read_text(spark, tables.path(NOTE))
    except UnicodeDecodeError:
        return Note()
    return Note() if text is None else note_of(text.encode())


def write_note(spark: SparkSession, tables: Tables, note: Note) -> None:
    tables.require()
    ordered = Note(note.rules, *(dict(sorted(days.items())) for days in (note.days, note.unfinished)))
    write_text(spark, tables.path(NOTE), msgspec.json.encode(ordered).decode())


def files_present(spark: SparkSession, tables: Tables) -> dict[date, list[str]]:
    """Return the days of the `WATCHED` tables, each with the names of its files. Raises OSError like `sound`."""
    files: dict[date, list[str]] = {}
    for name in WATCHED:
        for path in sound(tables.read(spark, name)).inputFiles():
            below = path.rpartition(f"/{name}/day=")[2]
            if (day := day_of(f"day={below.partition('/')[0]}")) is not None:
                files.setdefault(day, []).append(f"{name}/{below}")
    return files


def days_present(spark: SparkSession, tables: Tables) -> dict[date, str]:
    return {day: digest(names) for day, names in files_present(spark, tables).items()}


def digest(names: Iterable[str]) -> str:
    """Return a short hash of file names, each ``table/YYYY-MM-DD/…``."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def changed_days(note: Note, found: Mapping[date, str], rules: str) -> list[date]:
    """Return the sorted days to derive, with unfinished days and days whose files were deleted."""
    if note.rules != rules:
        return sorted({*found, *note.days, *note.unfinished})
    known = {day: derived.files for day, derived in note.days.items()}
    differing = {day for day in {*found, *known} if found.get(day) != known.get(day)}
    return sorted(differing | note.unfinished.keys())


FORMAT: Final = 1
"""The version of the tables' folders, files and columns. A change that an older Karrot would damage adds 1."""

_FILE: Final = "_format.json"


class NewerTables(RuntimeError):  # noqa: N818 (names the state of the tables)
    """A newer Karrot wrote the tables. The message says what to do."""


class _Mark(msgspec.Struct):
    format: int


def require_known_format(spark: SparkSession, tables: Tables) -> None:
    """Raise NewerTables if a newer Karrot wrote the tables. Mark tables without a versioned mark."""
    path = tables.path(_FILE)
    try:
        found = msgspec.json.decode(read_text(spark, path) or "", type=_Mark).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = 0
    if found > FORMAT:
        raise NewerTables(
            f"{s3_url(tables.directory)} has tables of format {found}, and this Karrot writes format {FORMAT}: a newer "
            "Karrot wrote them. Upgrade this Karrot, or give it other --tables."
        )
    if found < 1:
        write_text(spark, path, msgspec.json.encode(_Mark(FORMAT)).decode())
