"""Keeps the recent log ends of each partition on the driver, for the verdicts of all buckets."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.evaluate.log_end_lookup import LogEnds, source_key
from karrot.pipeline.offsets.log_ends import LogEndReader, PollSummary
from karrot.pipeline.store.filesystem import literal
from karrot.pipeline.window_arrays.commit_arrays import LogEndArrays
from karrot.watch.cluster_interface import ClusterError, Failure

_SINCE_THE_LAST_BATCH: Final = 30
"""How many log ends are kept besides those of a ring. The commits of a batch are measured with them."""

_SAMPLE: Final = pa.schema({"topic": pa.string(), "partition": pa.int32(), "at_ms": pa.int64(), "offset": pa.int64()})


class LogEndLook(NamedTuple):
    """New log ends, in order of time, and the topics that exist."""

    samples: Sequence[tuple[TopicPartition, LogEnd]]
    topics: Collection[str]


class LogEndSource(Protocol):
    """Where log ends come from."""

    def look(self, topics: Collection[str], between_ms: tuple[int, int]) -> LogEndLook | None:
        """The log ends of these topics after the first of two times and up to the second.

        ``None`` if there is no news, or no answer. The last log ends then stay.
        """


@dataclass(slots=True)
class RecentLogEnds:
    """The recent log ends of the partitions of the topics on which groups commit."""

    intervals: int
    topic_keys: dict[str, int] = field(default_factory=dict)
    ends: dict[TopicPartition, deque[LogEnd]] = field(default_factory=dict)

    def add(self, look: LogEndLook) -> None:
        """Add new log ends, and forget those of topics that were deleted."""
        for place, end in look.samples:
            if place not in self.ends:
                self.ends[place] = deque(maxlen=self.intervals + _SINCE_THE_LAST_BATCH)
            self.ends[place].append(end)
        self.ends = {place: ends for place, ends in self.ends.items() if place.topic in look.topics}
        self.topic_keys = {topic: key for topic, key in self.topic_keys.items() if topic in look.topics}

    def as_arrays(self) -> LogEnds:
        """All log ends."""
        places = [place for place in self.ends if place.topic in self.topic_keys]
        topic_keys = np.array([self.topic_keys[place.topic] for place in places], np.int64)
        keys = source_key(topic_keys, np.array([place.partition for place in places], np.int64))
        by_key = np.argsort(keys)
        rows = [(source, *end) for source, row in enumerate(by_key.tolist()) for end in self.ends[places[row]]]
        counts = {topic: len([*each]) for topic, each in groupby(sorted(places), key=lambda place: place.topic)}
        return LogEnds(keys[by_key], LogEndArrays(*np.array(rows, np.int64).reshape(-1, 3).T.copy()), counts)

    def to_table(self) -> pa.Table:
        """The log ends as a table, for the checkpoint."""
        rows = [(*place, *end) for place, ends in self.ends.items() for end in ends]
        return pa.Table.from_pylist([dict(zip(_SAMPLE.names, row, strict=True)) for row in rows], _SAMPLE)

    @classmethod
    def from_table(cls, rows: list[Any], intervals: int) -> "RecentLogEnds":
        """Read the rows of a table that `to_table` made."""
        history = cls(intervals)
        samples = [(TopicPartition(row.topic, row.partition), LogEnd(row.at_ms, row.offset)) for row in rows]
        history.add(LogEndLook(samples, {row.topic for row in rows}))
        return history


@dataclass(slots=True)
class LogEndsFromKafka:
    """Asks Kafka for log ends, at most once in ``every`` for the same topics.

    ``tell`` gets a summary if Kafka does not answer: without a log end, commits on a new partition are dropped.
    """

    kafka: LogEndReader
    every: timedelta
    tell: Callable[[PollSummary], object]

    _next_ms: int = 0
    _topics: frozenset[str] = frozenset()

    def look(self, topics: Collection[str], between_ms: tuple[int, int]) -> LogEndLook | None:
        """One log end of each partition, or nothing before the interval is over."""
        now_ms = between_ms[1]
        if now_ms < self._next_ms and self._topics.issuperset(topics):
            return None
        try:
            counts: Mapping[str, int] = self.kafka.partitions(topics)
            places = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
            found = self.kafka.log_ends(places)
        except ClusterError as error:
            self.tell(PollSummary(trouble=str(error)))
            return None
        self._next_ms, self._topics = now_ms + self.every // timedelta(milliseconds=1), frozenset(topics)
        samples = [(place, LogEnd(now_ms, end)) for place, end in found.items() if not isinstance(end, Failure)]
        return LogEndLook(samples, counts)


@dataclass(frozen=True, slots=True)
class LogEndsFromParquet:
    """Reads Parquet files with the columns ``topic, partition, end_offset, observed_at``."""

    spark: SparkSession
    directory: str

    def look(self, topics: Collection[str], between_ms: tuple[int, int]) -> LogEndLook | None:
        """The log ends in that time. No topic is deleted."""
        after_ms, now_ms = between_ms
        at_ms = F.unix_millis("observed_at").alias("at_ms")
        rows = self.spark.read.option("recursiveFileLookup", "true").parquet(literal(self.directory))
        found = (
            rows.where(F.col("topic").isin([*topics]))
            .select("topic", "partition", at_ms, "end_offset")
            .where(F.col("at_ms").between(after_ms + 1, now_ms))
            .orderBy("at_ms")
            .collect()
        )
        samples = [(TopicPartition(row.topic, row.partition), LogEnd(row.at_ms, row.end_offset)) for row in found]
        return LogEndLook(samples, topics)
