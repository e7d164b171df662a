"""Reads the pipeline's tables, and commits batches and days to them.

Spark writes plain Parquet files under new names into a new folder. Then the driver commits the files to the log of the
table (Delta Lake) in one transaction, together with the removal of the files that they replace. So a reader sees all of
a write or nothing, and keeps the version that it opened. See `karrot.history.delta_tables` for the names of the files.

The note ``_derived.json`` has a digest of the files of each day, and the rules by which the days were derived. If the
files or the rules change, ``derive`` makes the day again. The note also has the versions of the derived tables that
belong together.
"""

import hashlib
import json
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from karrot.history.days_with_data import NOTE, Note, day_of, note_of
from karrot.history.delta_tables import LOG, DataFile, data_files, open_table, why
from karrot.pipeline.schemas_and_conversions import (
    ABOUT,
    DERIVED,
    PIECES,
    STREAMED,
    SUMMARIES,
    TABLES,
    UNIQUE_BY,
    VERDICT_SUMMARIES,
    columns_of,
    rows,
    with_comments,
    with_day,
)
from karrot.pipeline.store.hadoop_filesystem import (
    create_new,
    data_files_below,
    delete,
    delta_place,
    exists,
    flush_files,
    is_torn,
    listing,
    literal,
    local_path,
    place_for,
    read_text,
    remove_empty_folders,
    rows_in,
    write_text,
)
from karrot.settings.types import s3_url

if TYPE_CHECKING:
    from deltalake import DeltaTable

_WRITER: Final = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # A cluster's default must not split the one file of a day.
    "maxRecordsPerFile": "0",
}
_SCHEMAS: Final[Mapping[str, StructType]] = {**TABLES, SUMMARIES: VERDICT_SUMMARIES}
SOURCES: Final = ("events", "partitions")
"""The tables that ``ingest`` makes from events."""

WATCHED: Final = (*SOURCES, "commits", "members", "ends")
"""The tables from which other tables are derived."""

READERS_HOURS: Final = 24
"""How long ``compact`` keeps the files of an old version. No reader may keep a version for longer."""

_PROPERTIES: Final = {
    "delta.deletedFileRetentionDuration": f"interval {READERS_HOURS} hours",
    "delta.logRetentionDuration": f"interval {READERS_HOURS} hours",
    # Each commit since the last checkpoint costs a reader two requests on S3.
    "delta.checkpointInterval": "10",
    # Delta would delete old entries before their checkpoint is flushed. A derived table's log must also keep the
    # version in the note, however old it is: see `vacuum`.
    "delta.enableExpiredLogCleanup": "false",
}

_CURE: Final = (
    "Restore the file. If it is lost, delete the directory of the table. If derive made the table, also delete "
    "<tables>/_derived.json and run derive. If not, run the command that made it, with a new --checkpoint."
)
_log: Final = structlog.get_logger(__name__)
_MOST_SMALL: Final = 100
_SMALL_BYTES: Final = 32 * 1024 * 1024
_ATTEMPTS: Final = 30
_AGAIN_S: Final = 0.2
_FLUSHED_S: Final = 60
"""An earlier commit can belong to another process that has not flushed it yet."""


class TablesChanged(RuntimeError):  # noqa: N818 (names what happened)
    """Another command changed files that this command was about to replace. The message says what to do."""


class UnreadableTable(RuntimeError):  # noqa: N818 (names the state of the table)
    """The log of a table cannot be read, or one of its files is missing or damaged. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables below one directory: a local path, or a URL of a file system that Hadoop supports (``s3a://…``).

    ``require`` raises an error if the tables must not be written any more (`karrot.pipeline.store.write_lease`). A
    table in ``kept`` is read from these files, and other tables at their newest version. Reads and writes raise
    `UnreadableTable`.
    """

    directory: str
    require: Callable[[], object] = lambda: None
    kept: Mapping[str, Sequence[DataFile]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def at(cls, spark: SparkSession, place: str) -> Self:
        return cls(place_for(spark, place))

    def keep(self, spark: SparkSession, names: Iterable[str], versions: Mapping[str, int] | None = None) -> Self:
        """Return the same tables. Those with these names do not change any more.

        They stay at the given ``versions``, and a table without one is empty; by default, at their newest versions.
        The log of an old version can be deleted, so a version is kept as its list of files.
        """
        kept: dict[str, Sequence[DataFile]] = {**self.kept}
        for name in names:
            is_known = versions is None or name in versions
            table = self._open(spark, name, versions[name] if versions else None) if is_known else None
            if table is None and versions and is_known:
                raise UnreadableTable(f"{s3_url(self.path(name))} is missing, and {NOTE} names it. {_CURE}")
            kept[name] = [] if table is None else data_files(table)
        return replace(self, kept=kept)

    def together(self, spark: SparkSession) -> Self:
        """Return the same tables at versions that belong together and do not change any more.

        The derived tables are those of the last ``derive`` that ended, and the streamed tables are the newest.
        """
        return self.keep(spark, STREAMED).keep(spark, DERIVED, read_note(spark, self).versions or None)

    def path(self, name: str, *below: str) -> str:
        return "/".join([self.directory.rstrip("/"), name, *below])

    def checkpoint(self, job: str) -> str:
        return self.path("_checkpoints", job)

    def files(self, spark: SparkSession, name: str) -> Sequence[DataFile]:
        """The data files of a table; none if the table does not exist."""
        if (kept := self.kept.get(name)) is not None:
            return kept
        table = self._open(spark, name)
        return [] if table is None else data_files(table)

    def days(self, spark: SparkSession, name: str) -> list[date]:
        return sorted({file.day for file in self.files(spark, name)})

    def read(
        self, spark: SparkSession, name: str, *, days: Iterable[date] | None = None, batches: bool = False
    ) -> DataFrame:
        """Read a table with the column ``day`` and, if ``batches``, ``batch_id``; only ``days``, if given.

        The result is empty if the table does not exist.
        """
        wanted = None if days is None else {*days}
        files = [file for file in self.files(spark, name) if wanted is None or file.day in wanted]
        return self.read_files(spark, name, files, batches=batches)

    def read_files(
        self, spark: SparkSession, name: str, files: Sequence[DataFile], *, batches: bool = False
    ) -> DataFrame:
        """Read some data files of a table, as `read` does."""
        in_path = with_day(_SCHEMAS[name]).add("batch_id", "string")
        schema = in_path if batches else with_day(_SCHEMAS[name])
        if not files:
            # The filter lets the optimizer see that the table is empty, and leave out the steps that depend on the
            # table.
            return spark.range(0).where(F.lit(False)).select(rows([], schema))
        self._require_whole(spark, name, files)
        reader = spark.read.schema(in_path).option("basePath", self.path(name))
        read = reader.parquet(*(literal(self.path(name, file.path)) for file in files))
        if batches:
            read = read.withColumn("batch_id", F.substring_index("batch_id", ".", 1))
        return read.select(*columns_of(schema))

    def append(self, df: DataFrame, name: str, batch_id: str, *, job: str = "") -> int:
        """Commit a batch of a streamed table, and return the number of its rows.

        ``df`` has the schema's columns and ``day``. If the batch was committed before, its old rows are removed in the
        same transaction. On a local file system, the rows are on the disk when the call returns.

        ``job`` is the beginning of the ids of a job's batches. If a day has many small files of the job, they are
        merged, but not the file of this batch: after a crash, the job may repeat it.
        """
        # Only names get dictionaries: for numbers and timestamps, they cost time and space.
        plain = {
            f"parquet.enable.dictionary#{column.name}": "false"
            for column in _SCHEMAS[name]
            if name in SOURCES and (column.name == "event_id" or not isinstance(column.dataType, StringType))
        }
        files = self._written(df.select(*columns_of(with_day(_SCHEMAS[name]))), name, batch_id, plain)
        spark = df.sparkSession
        kept = self._commit(spark, name, files, lambda file: file.batch_id == batch_id)
        for day in {file.day for file in files if job}:
            of_job = [file for file in kept if file.day == day and file.batch_id.startswith(job)]
            small = [file for file in of_job if file.batch_id != batch_id and file.size < _SMALL_BYTES]
            if len(small) >= _MOST_SMALL:
                with suppress(TablesChanged):  # another command merges them, or the next batch does
                    self.merge(spark, name, small, f"{job}merged-{uuid.uuid4().hex[:8]}")
        return sum(file.rows for file in files)

    def drop_batch(self, spark: SparkSession, name: str, batch_id: str) -> None:
        """Remove the rows of a batch, if it was committed before."""
        self._commit(spark, name, (), lambda file: file.batch_id == batch_id)

    def replace_days(
        self,
        df: DataFrame,
        name: str,
        days: Iterable[date],
        *,
        pieces: Collection[tuple[date, int]] | None = None,
        batch_id: str = "",
    ) -> None:
        """Replace days of a derived table by the rows of ``df``, which has the schema's columns and ``day``.

        For a table with `PIECES`, ``df`` also has ``piece``, and ``pieces`` limits the replacement. A day or piece is
        one sorted file, or none without rows.
        """
        chosen, by = {*days}, ["day", *(["piece"] if name in PIECES else [])]
        columns = [*columns_of(_SCHEMAS[name]), *by]
        ordered = df.select(*columns).repartition(*by).sortWithinPartitions(*by, *ABOUT[name].sorted_by)
        files = self._written(ordered, name, batch_id or new_batch("derived"), {}, by)
        self._commit(
            df.sparkSession,
            name,
            files,
            lambda file: file.day in chosen and (pieces is None or (file.day, file.piece) in pieces),
            is_exclusive=True,
        )

    def merge(self, spark: SparkSession, name: str, files: Sequence[DataFile], batch_id: str) -> Sequence[DataFile]:
        """Replace files of one day of a streamed table by one sorted file with the same rows, each of them once.

        Return the file. Raises `TablesChanged` if one of the files was removed meanwhile.
        """
        found = self.read_files(spark, name, files).dropDuplicates(UNIQUE_BY.get(name))
        ordered = found.repartition(1).sortWithinPartitions(*ABOUT[name].sorted_by)
        merged, old = self._written(ordered, name, batch_id, {}), {file.path for file in files}
        self._commit(spark, name, merged, lambda file: file.path in old, merges=len(old))
        return merged

    def drop_days(self, spark: SparkSession, name: str, days: Collection[date]) -> None:
        self._commit(spark, name, (), lambda file: file.day in days)

    def newest(self, spark: SparkSession, names: Iterable[str]) -> dict[str, int]:
        """The newest versions of the tables with these names that exist, by the names of the entries in their logs."""
        logs = {name: listing(spark, self.path(name, LOG)) for name in names}
        found = {name: [int(each[:20]) for each in log if each[:20].isdecimal()] for name, log in logs.items()}
        return {name: max(versions) for name, versions in found.items() if versions}

    def vacuum(self, spark: SparkSession, name: str, keep: int | None) -> None:
        """Delete the files that no version of the last `READERS_HOURS` has, nor the version ``keep``.

        Also delete the old entries of the log if ``keep`` is the newest version or ``None``, and the old folders
        without files, which a local file system has.
        """
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 (an extra)

        if (table := self._open(spark, name)) is None:
            return
        try:
            if keep in (None, table.version()):
                table.cleanup_metadata()
            table.vacuum(dry_run=False, full=True, keep_versions=None if keep is None else [keep])
        except (DeltaError, OSError) as error:
            raise UnreadableTable(f"{s3_url(self.path(name))} cannot be cleaned up: {why(error)}") from error
        remove_empty_folders(spark, self.path(name), older_than=timedelta(hours=READERS_HOURS))

    def _written(
        self,
        df: DataFrame,
        name: str,
        batch_id: str,
        options: Mapping[str, str],
        by: Sequence[str] = ("day",),
    ) -> list[DataFile]:
        """Write rows into a new folder, and return its files, which no version of the table has yet."""
        spark, folder = df.sparkSession, f"batch_id={batch_id}.{uuid.uuid4().hex[:8]}"
        path = self.path(name, folder)
        self.require()
        try:
            df.write.options(**_WRITER, **options).partitionBy(*by).parquet(path, compression="zstd")
            flush_files(spark, path)
            found = [
                DataFile.at(f"{folder}/{below}", size, rows_in(spark, f"{path}/{below}"))
                for below, size in data_files_below(spark, path).items()
            ]
        except BaseException:
            delete(spark, path)
            raise
        if not found:
            delete(spark, path)
        return found

    def _commit(
        self,
        spark: SparkSession,
        name: str,
        added: Sequence[DataFile],
        is_old: Callable[[DataFile], bool],
        *,
        is_exclusive: bool = False,
        merges: int = 0,
    ) -> list[DataFile]:
        """Add and remove files of a table in one transaction. Return the files that the table then has.

        If another command commits at the same time, the commit is tried again. But if it ``is_exclusive`` or ``merges``
        this number of files, it raises `TablesChanged`: its rows may depend on the files that the other one changed.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError  # noqa: PLC0415 (an extra)
        from deltalake.transaction import AddAction, RemoveAction  # noqa: PLC0415 (an extra)

        for attempt in range(1, _ATTEMPTS + 1):
            table = self._open(spark, name)
            listed = [] if table is None else data_files(table)
            old = [file for file in listed if is_old(file)]
            after = [*(file for file in listed if file not in old), *added]
            if not added and not old:
                return after
            if merges not in (0, len(old)):
                raise TablesChanged(f"another command changed {s3_url(self.path(name))}: run the command again")
            self.require()
            began_s = time.time()
            now_ms = int(began_s * 1_000)
            try:
                table = _with_all_columns(table, name) if table is not None else self._created(spark, name)
                # deltalake ignores another command's removals that change no data, as those of a merge. Then both would
                # remove a file and add its rows.
                actions: list[AddAction | RemoveAction] = [
                    RemoveAction(file.path, True, now_ms, file.size, file.partition) for file in old
                ]
                for file in added:
                    stats = json.dumps({"numRecords": file.rows})
                    actions.append(AddAction(file.path, file.size, file.partition, now_ms, not merges, stats))
                table.create_write_transaction(actions, "append", table.schema(), ["day"])
            except CommitFailedError as error:
                if is_exclusive or attempt == _ATTEMPTS:
                    place = s3_url(self.path(name))
                    raise TablesChanged(f"another command changed {place} ({why(error)}): run it again") from error
                time.sleep(_AGAIN_S * random.random())  # noqa: S311 (no secret)
            except (DeltaError, OSError) as error:
                raise UnreadableTable(f"{s3_url(self.path(name))} cannot be written: {why(error)}") from error
            else:
                flush_files(spark, self.path(name, LOG), began_s - _FLUSHED_S)
                if name in STREAMED and (table.version() + 1) % 10 == 0:  # the version before has a checkpoint
                    table.cleanup_metadata()
                return after
        raise AssertionError  # the last attempt raises

    def _created(self, spark: SparkSession, name: str) -> "DeltaTable":
        from deltalake import DeltaTable, Schema  # noqa: PLC0415 (an extra)

        place, options = delta_place(spark, self.path(name))
        schema = Schema.from_json(with_comments(_SCHEMAS[name], ABOUT[name]).json())
        table = DeltaTable.create(
            place,
            schema,
            mode="ignore",
            partition_by=["day"],
            description=str(ABOUT[name]),
            configuration=_PROPERTIES,
            storage_options=options,
        )
        flush_files(spark, self.path(name, LOG))  # of the unflushed entries, only the newest can be torn
        return table

    def _open(self, spark: SparkSession, name: str, version: int | None = None) -> "DeltaTable | None":
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 (an extra)

        place, options = delta_place(spark, self.path(name))
        local = local_path(spark, self.path(name, LOG))
        try:
            if local is not None:
                remove_torn_commit(local)
            return open_table(place, options, version)
        except (DeltaError, OSError) as error:
            if local is not None and remove_torn_checkpoint(local):
                return self._open(spark, name, version)
            raise UnreadableTable(f"{s3_url(self.path(name))} cannot be read: {why(error)}") from error

    def _require_whole(self, spark: SparkSession, name: str, files: Iterable[DataFile]) -> None:
        """Raise `UnreadableTable` if a local file is missing or too short. Spark reads an empty file as no rows."""
        if (local := local_path(spark, self.path(name))) is None:
            return
        for file in files:
            path = local / file.path
            size = path.stat().st_size if path.exists() else None
            if size != file.size:
                state = "is missing" if size is None else f"has {size} bytes of {file.size}"
                raise UnreadableTable(f"{path} {state}. {_CURE}")


def remove_torn_commit(log: Path) -> None:
    """Delete the newest entry of a local log, and its checkpoint, if the entry is torn.

    Only a power failure tears an entry, and its commit did not end.
    """
    entries = sorted(log.glob("*.json"))[-2:]
    if [is_torn(entry.read_bytes()) for entry in entries] in ([True], [False, True]):
        newest = entries[-1]
        _log.warning("an entry of a table's log was torn", code="torn_commit", file=str(newest))
        for name in ("_last_checkpoint", f"{newest.stem}.checkpoint.parquet", newest.name):
            (log / name).unlink(missing_ok=True)


def remove_torn_checkpoint(log: Path) -> bool:
    """Put a torn newest checkpoint of a local log aside, with the file that names it. Return whether there was one.

    The entries that it summarizes are still there.
    """
    torn = [hint] if (hint := log / "_last_checkpoint").exists() else []
    for newest in sorted(log.glob("*.checkpoint.parquet"))[-1:]:
        try:
            pq.read_table(newest)
        except (pa.ArrowException, OSError):
            torn.append(newest)
    for each in torn:
        _log.warning("a checkpoint of a table's log cannot be read", code="torn_checkpoint", file=str(each))
        each.rename(f"{each}.torn")
    return bool(torn)


def new_batch(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def _with_all_columns(table: "DeltaTable", name: str) -> "DeltaTable":
    """Add the columns that an older Karrot did not have to the schema of the table."""
    from deltalake import Schema  # noqa: PLC0415 (an extra)

    known = {column.name for column in table.schema().fields}
    columns = with_comments(_SCHEMAS[name], ABOUT[name])
    if missing := [column for column in columns if column.name not in known]:
        table.alter.add_columns(Schema.from_json(StructType(missing).json()).fields)
        table.update_incremental()
    return table


def read_note(spark: SparkSession, tables: Tables) -> Note:
    """Read the note. If it is missing or damaged, return an empty note: ``derive`` then makes every day again.

    If somebody has deleted a derived table, the note has no days: ``derive`` then makes every day again too.
    """
    try:
        text = read_text(spark, tables.path(NOTE))
    except UnicodeDecodeError:
        text = "not UTF-8"
    note = note_of((text or "").encode())
    if note == Note() and text not in (None, "{}"):
        _log.warning("the note of derived days is damaged: derive makes every day again", code="note_damaged")
    is_whole = all(exists(spark, tables.path(name, LOG)) for name in note.versions)
    return note if is_whole else msgspec.structs.replace(note, rules="", days={})


def write_note(spark: SparkSession, tables: Tables, note: Note) -> None:
    tables.require()
    ordered = msgspec.structs.replace(
        note, days=dict(sorted(note.days.items())), unfinished=dict(sorted(note.unfinished.items()))
    )
    write_text(spark, tables.path(NOTE), msgspec.json.encode(ordered).decode())


def by_day(files: Mapping[str, Iterable[DataFile]]) -> dict[date, list[str]]:
    """Return the days of files that are given by table, each with the paths of its files."""
    found: dict[date, list[str]] = {}
    for name, of_table in files.items():
        for file in of_table:
            found.setdefault(file.day, []).append(f"{name}/{file.path}")
    return found


def digest(names: Iterable[str]) -> str:
    """Return a short hash of the paths of files, each ``table/batch_id=…``."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def changed_days(note: Note, found: Mapping[date, str], rules: str) -> list[date]:
    """Return the sorted days to derive, with unfinished days and days whose files were deleted."""
    if note.rules != rules:
        return sorted({*found, *note.days, *note.unfinished})
    known = {day: derived.files for day, derived in note.days.items()}
    differing = {day for day in {*found, *known} if found.get(day) != known.get(day)}
    return sorted(differing | note.unfinished.keys())


FORMAT: Final = 2
"""The version of the tables' folders, files and columns. A change that an older Karrot would damage adds 1."""

_FILE: Final = "_format.json"


class OtherFormat(RuntimeError):  # noqa: N818 (names the state of the tables)
    """A newer or an older Karrot wrote the tables. The message says what to do."""


class _Mark(msgspec.Struct):
    format: int


def require_known_format(spark: SparkSession, tables: Tables) -> None:
    """Raise OtherFormat if another format is in the tables. Mark new tables."""
    found = stored_format(spark, tables)
    if found > FORMAT:
        raise OtherFormat(
            f"{s3_url(tables.directory)} has tables of format {found}, and this Karrot writes format {FORMAT}: a newer "
            "Karrot wrote them. Upgrade this Karrot, or give it other --tables."
        )
    entries = (entry for name in STREAMED for entry in listing(spark, tables.path(name)))
    if found < FORMAT and any(day_of(entry) is not None for entry in entries):
        raise OtherFormat(
            f"{s3_url(tables.directory)} has tables of Karrot 2.0.0a1, which are plain Parquet. Give this Karrot other "
            "--tables."
        )
    if not found:
        write_text(spark, tables.path(_FILE), msgspec.json.encode(_Mark(FORMAT)).decode())
    path = tables.path(_FILE)
    if local_path(spark, path) is None:
        try:
            create_new(spark, path, read_text(spark, path) or "")
        except Py4JJavaError:
            return
        raise OtherFormat(
            f"{s3_url(path)} exists, and the store has written it again: it ignores If-None-Match. Then two commands "
            "can lose each other's rows, so put the tables into a store with conditional writes."
        )


def stored_format(spark: SparkSession, tables: Tables) -> int:
    """Return the format of the tables; 0 if the tables have no mark."""
    try:
        return msgspec.json.decode(read_text(spark, tables.path(_FILE)) or "", type=_Mark).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
