"""Polls Kafka for log end offsets, and writes the table ``ends`` from these polls, or from files of other programs.

The job also polls while no group commits, because the lag depends on whether a log still grows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from itertools import chain
from threading import Event, Lock
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from karrot.clock import Clock
from karrot.event import TopicPartition
from karrot.pipeline.schemas_and_conversions import ENDS, columns_of, is_possible, with_day
from karrot.pipeline.store.table_files import Tables, new_batch
from karrot.pipeline.stream.record_sources import TopicMetadata, new_files
from karrot.pipeline.stream.streaming_queries import batch_name, checkpoint_id, start_query
from karrot.pipeline.window_arrays.judge_windows import Ints
from karrot.text import counted
from karrot.watch.cluster_interface import ClusterError, Failure

_AT_ONCE: Final = 20_000
"""The most partitions of one request. A poll of more partitions takes several requests."""

_SAMPLE: Final = StructType(
    [ENDS[name] for name in ("topic", "partition", "start_offset", "end_offset", "observed_at")]
)
_NEEDED: Final = ("topic", "partition", "end_offset")
_TYPES: Final = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.timestamp("us", "UTC"))
_ROWS: Final = pa.schema(zip(_SAMPLE.fieldNames(), _TYPES, strict=True))

_MOST_WAITING: Final = 128
"""The maximum number of polls that wait for a batch. If more polls wait, every second poll is dropped."""

_JOB: Final = "polls"


class PollSummary(NamedTuple):
    """Counts the partitions that one poll wrote and left out. ``problem`` says why Kafka did not answer."""

    written: int = 0
    left_out: int = 0
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            some = f" after {counted(self.written, 'partition')}" if self.written else ""
            return f"log ends: Kafka did not answer{some}: {self.problem}"
        text = counted(self.written, "log end")
        return f"{text}, {self.left_out:,} left out" if self.left_out else text


class LogEndLook(NamedTuple):
    """Log ends: their partitions, times and offsets. ``topics`` are the topics that existed at the newest time.

    A topic exists until two polls in a row lack it, because one answer of a broker can be incomplete.
    ``start`` has the log start of each log end, or -1 if it is not known. Kafka did not give ``left_out`` log ends.
    """

    places: Sequence[TopicPartition]
    at_ms: Ints
    offset: Ints
    start: Ints
    topics: Collection[str]
    left_out: int = 0


@dataclass(slots=True)
class LogEndPolls:
    """Polls Kafka for the log ends of the ``topics`` at an interval, between batches too if a thread calls `if_due`.

    As in Burrow, the log end for a commit's lag is then at most ``every`` older than the commit. The log ends wait in
    memory for the next batch. If Kafka fails, a poll raises no error, because the next poll may succeed. ``tell`` gets
    the summary of each poll. After ``stop`` is set, a poll sends no further request.
    """

    kafka: TopicMetadata
    every: timedelta
    clock: Clock
    tell: Callable[[PollSummary], object] = lambda _summary: None
    topics: frozenset[str] = frozenset()
    at_once: int = _AT_ONCE
    stop: Event = field(default_factory=Event)
    waiting: list[LogEndLook] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _polled: frozenset[str] = frozenset()
    _absent: frozenset[str] = frozenset()
    _counts: Mapping[str, int] = field(default_factory=dict)
    _asked: list[TopicPartition] = field(default_factory=list)
    _next_ms: float = 0

    def add(self, topics: Collection[str]) -> None:
        """Poll these topics too, from the next poll on."""
        with self._lock:  # a poll of the thread replaces the topics at its end
            self.topics = self.topics.union(topics)

    def if_due(self) -> None:
        """Poll if the interval since the beginning of the last poll is over. `taken` then returns the log ends."""
        with self._lock:
            if self.topics and self.clock.boot_ms() >= self._next_ms:
                self._poll()

    def taken(self, topics: Collection[str], *, needs_all: bool = False) -> LogEndLook | None:
        """Return the log ends since the last call; ``None`` without new ones. Poll at once if a topic is new.

        With ``needs_all``, raises `ClusterError` if this poll did not ask for all partitions.
        """
        with self._lock:
            if not self._polled.issuperset(topics):
                self.topics = self.topics.union(topics)
                problem = self._poll()
                if needs_all and not self._polled.issuperset(topics):
                    raise ClusterError("no_log_ends", problem or "the job was stopped")
            looks, self.waiting = self.waiting, []
        if not looks:
            return None
        places = [*chain.from_iterable(each.places for each in looks)]
        columns = zip(*(each[1:4] for each in looks), strict=True)
        at_ms, offset, start = (np.concatenate(several) for several in columns)
        return LogEndLook(places, at_ms, offset, start, looks[-1].topics, sum(each.left_out for each in looks))

    def _poll(self) -> str:
        """Poll once, and return why Kafka did not answer."""
        self._next_ms = self.clock.boot_ms() + self.every.total_seconds() * 1000
        counts, asked, problem = self._counts, list[TopicPartition](), ""
        found = list[tuple[TopicPartition, int, int, int]]()
        try:
            counts = {**self.kafka.partitions(self.topics)}
            if counts != self._counts:  # all polls share the names of the partitions
                places = (TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))
                self._counts, self._asked = counts, [*places]
            asked = self._asked
            for first in range(0, len(asked), self.at_once):
                if self.stop.is_set():
                    break
                some, now_ms = asked[first : first + self.at_once], self.clock.wall_ms()
                # Read the log starts first, so that no log end is below its log start.
                starts, log_ends = _known(self.kafka.log_starts(some)), _known(self.kafka.log_ends(some))
                found += ((place, now_ms, end, starts.get(place, -1)) for place, end in log_ends.items())
            else:
                self._polled = self.topics
            # A deleted topic is asked for again when a group commits on it.
            absent = self.topics - counts.keys()
            self.topics, self._absent = (absent - self._absent).union(counts), absent
        except ClusterError as error:
            problem = str(error)
        left_out = len(asked) - len(found)
        self.tell(PollSummary(len(found), left_out, problem))
        if found or not problem:
            at_ms, offset, start = np.array([each[1:] for each in found], np.int64).reshape(-1, 3).T
            self.waiting.append(LogEndLook([each[0] for each in found], at_ms, offset, start, self.topics, left_out))
        if len(self.waiting) > _MOST_WAITING:  # a receiver is unreachable, so no batch takes the log ends
            del self.waiting[:-1:2]
        return problem


def append_ends(spark: SparkSession, tables: Tables, cluster: str, look: LogEndLook) -> int:
    """Append log ends to the table ``ends``. A repeated batch has other log ends, so each call has its own name."""
    if not look.places:
        return 0
    topic, partition = (pa.array([place[part] for place in look.places]) for part in range(2))
    columns = topic, partition, pa.array(look.start, mask=look.start < 0), pa.array(look.offset)
    at = pa.array(look.at_ms, pa.timestamp("ms", "UTC"))
    rows = pa.table([*columns, at], _SAMPLE.fieldNames()).cast(_ROWS)
    return tables.append(ends(spark.createDataFrame(rows).coalesce(1), cluster), "ends", new_batch(_JOB), job=_JOB)


def ends(samples: DataFrame, cluster: str) -> DataFrame:
    """Make the table ``ends``, with its day, from ``topic, partition, start_offset, end_offset, observed_at``."""
    return samples.withColumns(
        {"cluster": F.lit(cluster), "observed_at_ms": F.unix_millis("observed_at"), "day": F.to_date("observed_at")}
    ).select(*columns_of(with_day(ENDS)))


@dataclass(slots=True)
class LandEnds:
    """The job that reads log-end samples from Parquet files.

    The files have the columns ``topic, partition, start_offset, end_offset, observed_at``. ``start_offset`` can be
    NULL. A sample with NULL in another column, or with an impossible time, is left out and counted in ``total``.
    """

    spark: SparkSession
    directory: str
    cluster: str
    tables: Tables
    checkpoint: str
    total: PollSummary = PollSummary()  # noqa: RUF009 (cannot change)

    def start(self, every: timedelta | None = None) -> StreamingQuery:
        """Start the query and return. Raises `NoRecords`."""
        written_at = F.col("_metadata.file_modification_time").alias("written_at")
        samples = new_files(self.spark, self.directory, _SAMPLE).select(*_SAMPLE.fieldNames(), written_at)
        return start_query(samples, self.take, self.checkpoint, every)

    def take(self, samples: DataFrame, batch: int) -> None:
        name = batch_name(checkpoint_id(samples.sparkSession), batch)
        is_there = (F.col(column).isNotNull() for column in _NEEDED)
        is_whole = reduce(Column.__and__, is_there, is_possible("observed_at"))
        self.tables.append(ends(samples.where(is_whole), self.cluster), "ends", name)
        [(count, whole)] = samples.agg(F.count("*"), F.count(F.when(is_whole, 1))).collect()
        self.total = PollSummary(self.total.written + whole, self.total.left_out + count - whole)


def topics_of_late(spark: SparkSession, tables: Tables, cluster: str) -> list[str]:
    """Return the topics with commits on the newest two days, and with members on the newest 30 days."""
    found = set[str | None]()
    for name, newest in {"commits": 2, "members": 30}.items():
        if days := tables.days(spark, name)[-newest:]:
            late = tables.read(spark, name, days=days).where(F.col("cluster") == cluster)
            found.update(row.topic for row in late.select("topic").distinct().collect())
    return [topic for topic in found if topic is not None]


def _known(answers: Mapping[TopicPartition, int | Failure]) -> dict[TopicPartition, int]:
    return {place: answer for place, answer in answers.items() if not isinstance(answer, Failure)}
