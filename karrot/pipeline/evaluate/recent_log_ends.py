"""Keeps the recent log ends of each partition on the driver, for the verdicts of all buckets."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import compress
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.evaluate.log_end_lookup import LogEnds, source_key
from karrot.pipeline.offsets.log_ends import LogEndReader, PollSummary
from karrot.pipeline.store.filesystem import literal
from karrot.pipeline.window_arrays.commit_arrays import LogEndArrays
from karrot.watch.cluster_interface import ClusterError, Failure

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
    """The recent log ends of the partitions of the topics on which groups commit.

    A log end is a row of ``_ends``, whose source is the index of its partition in ``_places``.
    """

    intervals: int
    topic_keys: dict[str, int] = field(default_factory=dict)
    _places: dict[TopicPartition, int] = field(default_factory=dict)
    _ends: LogEndArrays = field(default_factory=lambda: LogEndArrays(*np.zeros((3, 0), np.int64)))

    def add(self, look: LogEndLook) -> None:
        """Add new log ends, and forget those of topics that were deleted."""
        rows = [(self._places.setdefault(place, len(self._places)), *end) for place, end in look.samples]
        new = np.array(rows, np.int64).reshape(-1, 3).T
        source, at_ms, offset = (np.append(*each) for each in zip(self._ends, new, strict=True))
        by_time = np.lexsort((at_ms, source))
        source, at_ms, offset = source[by_time], at_ms[by_time], offset[by_time]
        is_last = np.ones(len(source), np.bool_)
        is_last[:-1] = (source[1:] != source[:-1]) | (at_ms[1:] != at_ms[:-1])
        # Both looks of a batch can give the same log end.
        exists = np.array([place.topic in look.topics for place in self._places], np.bool_)
        is_kept = is_last & exists[source]
        number = np.cumsum(exists) - 1
        self._ends = LogEndArrays(number[source[is_kept]], at_ms[is_kept], offset[is_kept])
        self._places = {place: number for number, place in enumerate(compress(self._places, exists))}
        self.topic_keys = {topic: key for topic, key in self.topic_keys.items() if topic in look.topics}

    def forget_old(self) -> None:
        """Keep what the next batch needs: one log end for the lag of its first commit, and those for Burrow's rules."""
        kept, source = self.intervals + 1, self._ends.source
        is_kept = np.ones(len(source), np.bool_)
        is_kept[:-kept] = source[kept:] != source[:-kept]
        self._ends = LogEndArrays(*(column[is_kept] for column in self._ends))

    def as_arrays(self) -> LogEnds:
        """All log ends."""
        keys = np.array([self.topic_keys.get(place.topic, 0) for place in self._places], np.int64)
        keys = source_key(keys, np.array([place.partition for place in self._places], np.int64))
        by_key = np.argsort(keys)
        row = np.empty_like(by_key)
        row[by_key] = np.arange(len(by_key))
        ends = LogEndArrays(row[self._ends.source], *self._ends[1:])
        order = np.argsort(ends.source, kind="stable")
        counts = Counter(place.topic for place in self._places)
        return LogEnds(keys[by_key], LogEndArrays(*(column[order] for column in ends)), counts)

    def to_table(self) -> pa.Table:
        """The log ends as a table, for the checkpoint."""
        source = pa.array(self._ends.source)
        columns = (pa.array([place[part] for place in self._places]) for part in range(2))
        return pa.table([*(each.take(source) for each in columns), *map(pa.array, self._ends[1:])], _SAMPLE.names).cast(
            _SAMPLE
        )

    @classmethod
    def from_table(cls, table: pa.Table, intervals: int) -> Self:
        """Read a table that `to_table` made."""
        history = cls(intervals)
        topic, partition, at_ms, offset = (table.column(name).to_pylist() for name in _SAMPLE.names)
        places = map(TopicPartition, topic, partition)
        history.add(LogEndLook([*zip(places, map(LogEnd, at_ms, offset), strict=True)], {*topic}))
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
        new = rows.select("topic", "partition", at_ms, "end_offset").where(F.col("at_ms").between(after_ms + 1, now_ms))
        # A filter with the names of all topics would cost Spark more than to read the others.
        found = new.toArrow().filter(pc.field("topic").isin(pa.array([*topics], pa.string()))).sort_by("at_ms")
        topic, partition, observed_ms, offset = (column.to_pylist() for column in found.columns)
        places = map(TopicPartition, topic, partition)
        return LogEndLook([*zip(places, map(LogEnd, observed_ms, offset), strict=True)], topics)
