"""Starts streaming queries from their checkpoints, gives each batch an id, and runs them until they end or are stopped.

If possible, a query is stopped between two batches. A batch that loses rows fails, and is repeated.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from karrot.eventlog.locks import flush
from karrot.pipeline.store.hadoop_filesystem import (
    data_files_below,
    delete,
    flush_files,
    is_torn,
    listing,
    literal,
    local_path,
    read_text,
    write_text,
)
from karrot.pipeline.store.table_files import Tables

CheckpointReader = Callable[[str], str | None]
"""Returns the text of the named file in a checkpoint; ``None`` if the file does not exist."""

BATCH_BYTES: Final = 256 * 1024 * 1024
"""The maximum size of a batch's compressed files. A batch is a few times larger in memory or on the local disk."""

ANY_AGE: Final = "36500d"
"""The value of ``maxFileAge``. By default, Spark's file source ignores files that are older than a week."""

_log: Final = structlog.get_logger(__name__)
_POLL_S: Final = 0.2
_PATIENCE_S: Final = 20  # Kubernetes kills a pod after 30 s
_LAST_WORK_S: Final = 4


def start_query(
    lines: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: str, every: timedelta | None
) -> StreamingQuery:
    """Start a query that passes its batches to ``take``: the existing rows and, with ``every``, also later rows.

    After a crash, Spark repeats the same batch. On a local disk, this includes a power failure.
    """
    local = local_path(lines.sparkSession, checkpoint)
    if local is not None:
        repair_checkpoint(lines.sparkSession, local)

    def taken(rows: DataFrame, batch: int) -> None:
        if local is not None:
            begin_batch(rows.sparkSession, local, batch)
        try:
            take(rows, batch)
        except Py4JJavaError as error:
            # When Spark stops a query, it searches the text for the name of Py4J's error and then for
            # InterruptedException. In a long text, the search fails with a StackOverflowError of 1,000 lines.
            raise FailedInJava(str(error)) from None

    interval = every and f"{every // timedelta(milliseconds=1)} milliseconds"
    trigger: dict[str, Any] = {"processingTime": interval} if interval else {"availableNow": True}
    writer = lines.writeStream.foreachBatch(taken).trigger(**trigger)
    return writer.option("checkpointLocation", checkpoint).start()


_BEGUN: Final = "begun"
"""The file in a local checkpoint with the number of the last batch that began."""


def begin_batch(spark: SparkSession, checkpoint: Path, batch: int) -> None:
    """Flush the newest files of Spark's logs in a local checkpoint, which Spark does not do, and note the batch."""
    logs = _logs(checkpoint)
    newest = [entry for entries in logs.values() for entry in entries[-1:]]
    for each in (*newest, *logs, checkpoint / "metadata", checkpoint / "sources", checkpoint, checkpoint.parent):
        if each.exists():
            flush(each)
    write_text(spark, f"file:{checkpoint.absolute() / _BEGUN}", str(batch))


def repair_checkpoint(spark: SparkSession, checkpoint: Path) -> None:
    """Delete what a power failure can have torn in a local checkpoint: what was written after the last batch began.

    That can include the end of this batch. Then Spark repeats the batch.
    """
    note, logs = checkpoint / _BEGUN, _logs(checkpoint)
    if not note.exists():
        if not logs[checkpoint / "commits"]:  # with commits, another version of Karrot wrote the checkpoint
            for name in ("metadata", ".metadata.crc", "offsets", "commits", "sources"):
                delete(spark, f"file:{checkpoint.absolute() / name}")
        return
    torn = [entry for entry in logs.pop(checkpoint / "offsets") if int(entry.name) > int(note.read_text())]
    newest = [entry for entries in logs.values() for entry in entries[-1:]]
    torn += [entry for entry in newest if is_torn(entry.read_bytes().removeprefix(b"\0"))]  # Kafka's begins with it
    for each in torn:
        _log.warning("removed a file of a batch that did not begin or end", code="unfinished_batch", file=str(each))
        each.unlink()
        each.with_name(f".{each.name}.crc").unlink(missing_ok=True)  # Hadoop does not replace it


def _logs(checkpoint: Path) -> dict[Path, list[Path]]:
    """The files in each folder with a log of Spark, the newest file last. Most files belong to one batch."""
    folders = (checkpoint / "offsets", checkpoint / "commits", *checkpoint.glob("sources/*"))
    number: Callable[[Path], int] = lambda entry: int(entry.name.removesuffix(".compact"))  # noqa: E731
    return {folder: sorted(folder.glob("[0-9]*"), key=number) for folder in folders}


class FailedInJava(Exception):  # noqa: N818 (the text has the error)
    """A call to Java failed in a batch. The message is the text of Py4J's error."""


def checkpoint_id(spark: SparkSession) -> str:
    """Return the id of the query that calls this function. A new checkpoint has a new id."""
    return uuid.UUID(spark.sparkContext.getLocalProperty("sql.streaming.queryId")).hex


def checkpoint_reader(spark: SparkSession, checkpoint: str) -> CheckpointReader:
    return lambda name: read_text(spark, f"{checkpoint}/{name}")


def last_batch(spark: SparkSession, checkpoint: str) -> int:
    """Return the number of the last batch that ended; -1 if no batch ended."""
    ended = (name for name in listing(spark, f"{checkpoint}/commits") if name.isdecimal())
    return max(map(int, ended), default=-1)


def batch_time_ms(read: CheckpointReader, batch: int) -> int:
    """Return the time at which Spark chose the batch's last offset. A repeated batch has the same time."""
    text = read(f"offsets/{batch}")
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no offsets/{batch}")
    return int(json.loads(text.splitlines()[1])["batchTimestampMs"])


def batch_name(checkpoint: str, batch: int) -> str:
    """Return the name of a batch in the tables. The name begins with the `batch_prefix` of the checkpoint."""
    return f"{batch_prefix(checkpoint)}{batch:06d}"


def batch_prefix(checkpoint: str) -> str:
    return f"{checkpoint:.8}-"


class UnusableState(ValueError):  # noqa: N818 (names what was found)
    """The state in a checkpoint cannot be used. The message says where the state is and what to do."""


class StateNote(msgspec.Struct):
    """The content of ``state.json``: the ``version`` of the format, the last valid ``batch``, and its ``files``.

    ``files`` has the number of the batch's files and the number of their bytes. ``cluster`` is the cluster of the job.
    ``run`` is the end of the name of the batch's folder.
    """

    version: int
    batch: int = -1
    files: tuple[int, int] = (0, 0)
    cluster: str = ""
    run: str = ""

    @property
    def folder(self) -> str:
        return f"batch={self.batch}{self.run}"


Note = TypeVar("Note", bound=StateNote)


@dataclass(slots=True)
class StateFolder(Generic[Note]):
    """The state that a query keeps in the folder ``place`` of its checkpoint.

    Each batch writes its files below ``state/batch=N-RUN``, replaces ``state.json``, and then deletes the older files.
    ``state.json`` names the batch with valid files. If the driver dies before it replaces ``state.json``, the repeated
    batch finds the old ``state.json`` and files. It writes below another folder, because the JVM of a killed command
    can still write. A new state has the note ``first``. It is written only while this job may write its ``tables``.
    """

    spark: SparkSession
    tables: Tables
    place: str
    first: Note
    run: str = field(default_factory=lambda: f"-{uuid.uuid4().hex[:8]}")
    _note: Note | None = None

    def within(self, *names: str) -> str:
        return "/".join([self.place.rstrip("/"), *names])

    def of_batch(self, batch: int, *names: str) -> str:
        if self._note is not None and self._note.batch == batch:
            return self.within("state", self._note.folder, *names)
        return self.within("state", f"batch={batch}{self.run}", *names)

    def note(self) -> Note:
        """Return the content of ``state.json``, which the first call reads and checks. Raises `UnusableState`."""
        if self._note is not None:
            return self._note
        first, place = self.first, self.within("state.json")
        text, problem = read_text(self.spark, place), ""
        try:
            note = first if text is None else msgspec.json.decode(text, type=type(first))
        except msgspec.DecodeError as error:
            problem = f"{place} is damaged, or another version of Karrot wrote it ({error}): use another --checkpoint"
            raise UnusableState(problem) from error
        if note.version != first.version:
            problem = (
                f"{place} has version {note.version}, and this Karrot reads version {first.version}: use the Karrot "
            )
            problem += "that wrote it, or another --checkpoint"
        elif note.cluster not in ("", first.cluster):
            problem = f"{place} is of the cluster {note.cluster}, not of {first.cluster}: use another --checkpoint"
        elif (found := self._files(note)) != note.files:
            problem = f"the state in {self.place} is damaged, for example by a power cut: it has {found[0]} files of "
            problem += f"{found[1]:,} bytes, not {note.files[0]} of {note.files[1]:,}: use another --checkpoint"
        if problem:
            raise UnusableState(problem)
        self._note = note
        return note

    def write(self, rows: DataFrame, batch: int, name: str) -> None:
        """Write a table of the state of a batch."""
        rows.write.mode("overwrite").parquet(self.of_batch(batch, name), compression="zstd")

    def read(self, schema: StructType | str, *names: str) -> DataFrame:
        """Read a table of the state of the valid batch. The result has no rows before the first batch."""
        path = self.of_batch(self.note().batch, *names)
        if not listing(self.spark, path):
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(literal(path))

    def remember(self, note: Note) -> Note:
        """Replace ``state.json`` atomically, delete the files of all other batches, and return the new content."""
        self.tables.require()
        if self._note is None or note.batch != self._note.batch:
            flush_files(self.spark, self.of_batch(note.batch))
            note = msgspec.structs.replace(note, run=self.run, cluster=self.first.cluster)
            note = msgspec.structs.replace(note, files=self._files(note))
        write_text(self.spark, self.within("state.json"), msgspec.json.encode(note).decode())
        for name in listing(self.spark, self.within("state")):
            if name != note.folder:
                delete(self.spark, self.within("state", name))
        self._note = note
        return note

    def _files(self, note: Note) -> tuple[int, int]:
        sizes = data_files_below(self.spark, self.within("state", note.folder))
        return len(sizes), sum(sizes.values())


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Compute a frame once for several uses, and keep it on the local disk.

    The frame is not kept in memory, because Spark would hold whole blocks, each as large as the input of a task.
    Structs are not split into columns, because the split takes more time than it saves.
    """
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def run_queries(queries: Sequence[StreamingQuery], *, stop: Event, follow: bool) -> None:
    """Wait until ``stop`` is set, or all queries (with ``follow``: one query) have ended. After that, end all queries.

    Before this function ends a query, it waits at most 20 s for the running batch. Raises StreamingQueryException for a
    query that failed.
    """
    enough = all if follow else any
    try:
        while enough(query.isActive for query in queries) and not stop.wait(_POLL_S):
            pass
        was_stopped = stop.is_set()
    finally:
        for query in queries:
            for _ in range(round(_PATIENCE_S / _POLL_S)):
                if not query.isActive or not query.status["isTriggerActive"]:
                    break
                time.sleep(_POLL_S)
            query.stop()
    failed = [error for query in queries if (error := query.exception()) is not None]
    if failed and not was_stopped:
        raise failed[0]


@contextmanager
def repeated(work: Callable[[], object], stop: Event, every_s: float = _POLL_S) -> Iterator[None]:
    """Call ``work`` again and again in a thread, until ``stop`` is set or the ``with`` block ends.

    An error of ``work`` sets ``stop``, and the end of the block raises the error.
    """
    over, failed = Event(), list[BaseException]()

    def go() -> None:
        try:
            while not over.wait(every_s) and not stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001 (otherwise the error would be lost)
            failed.append(error)
            stop.set()

    thread = Thread(target=go, name="beside", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LAST_WORK_S)
    if failed:
        raise failed[0]


class UnevenError(RuntimeError):
    """The tables do not hold all rows that a batch read. The next run repeats the batch."""
