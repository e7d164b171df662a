"""Keeps each partition's recent log ends in the driver, for the verdicts of all buckets."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, compress
from threading import Lock
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from karrot.clock import Clock
from karrot.event import TopicPartition
from karrot.pipeline.evaluate.bucket_state import LogEnds, source_key
from karrot.pipeline.offsets.log_ends import LogEndReader, PollSummary
from karrot.pipeline.window_arrays.judge_windows import Ints, LogEndArrays
from karrot.watch.cluster_interface import ClusterError

_SAMPLE: Final = pa.schema(
    {"topic": pa.string(), "partition": pa.int32(), **dict.fromkeys(("at_ms", "offset", "start"), pa.int64())}
)

_MOST_POLLS: Final = 128
"""The maximum number of polls that wait for a batch. If more polls wait, every second poll is dropped."""


class LogEndLook(NamedTuple):
    """New log ends, sorted by time: partitions, times, offsets and log starts. ``topics`` are the existing topics."""

    places: Sequence[TopicPartition]
    at_ms: Ints
    offset: Ints
    start: Ints
    topics: Collection[str]


class LogEndSource(Protocol):
    def look(self, topics: Collection[str], between_ms: tuple[int, int]) -> LogEndLook | None:
        """Return the log ends of these topics after the first time of ``between_ms`` and up to the second.

        Returns ``None`` without new log ends or without an answer. The caller then keeps its log ends.
        """


@dataclass(slots=True)
class RecentLogEnds:
    """The recent log ends of the partitions of the topics on which groups commit.

    In ``_ends``, ``source`` is the index of a log end's partition in ``_places``.
    """

    intervals: int
    topic_keys: dict[str, int] = field(default_factory=dict)
    _places: dict[TopicPartition, int] = field(default_factory=dict)
    _ends: LogEndArrays = field(default_factory=lambda: LogEndArrays(*np.zeros((4, 0), np.int64)))

    def add(self, look: LogEndLook) -> None:
        """Add new log ends, and drop the log ends of deleted topics."""
        numbers = (self._places.setdefault(place, len(self._places)) for place in look.places)
        new = np.fromiter(numbers, np.int64, len(look.places)), look.at_ms, look.offset, look.start
        if len(look.at_ms):  # a stored log end later than all new log ends has a time in the future
            is_ahead = self._ends.observed_ms > look.at_ms.max()
            self._ends.observed_ms[is_ahead] = look.at_ms.min() - 1
        joined = [np.append(*each) for each in zip(self._ends, new, strict=True)]
        by_time = np.lexsort((joined[1], joined[0]))
        source, at_ms, offset, start = (column[by_time] for column in joined)
        is_last = np.ones(len(source), np.bool_)
        is_last[:-1] = (source[1:] != source[:-1]) | (at_ms[1:] != at_ms[:-1])
        # If a batch calls `look` twice, both calls can return the same log end.
        exists = np.array([place.topic in look.topics for place in self._places], np.bool_)
        is_kept = is_last & exists[source]
        number = np.cumsum(exists) - 1
        self._ends = LogEndArrays(number[source[is_kept]], at_ms[is_kept], offset[is_kept], start[is_kept])
        self._places = {place: number for number, place in enumerate(compress(self._places, exists))}
        self.topic_keys = {topic: key for topic, key in self.topic_keys.items() if topic in look.topics}

    def forget_old(self) -> None:
        """Keep only the log ends that the next batch needs for Burrow's rules and for its first commit's lag."""
        kept, source = self.intervals + 1, self._ends.source
        is_kept = np.ones(len(source), np.bool_)
        is_kept[:-kept] = source[kept:] != source[:-kept]
        self._ends = LogEndArrays(*(column[is_kept] for column in self._ends))

    def as_arrays(self) -> LogEnds:
        keys = np.array([self.topic_keys.get(place.topic, 0) for place in self._places], np.int64)
        keys = source_key(keys, np.array([place.partition for place in self._places], np.int64))
        by_key = np.argsort(keys)
        row = np.empty_like(by_key)
        row[by_key] = np.arange(len(by_key))
        ends = LogEndArrays(row[self._ends.source], *self._ends[1:])
        order = np.argsort(ends.source, kind="stable")
        counts = Counter(place.topic for place in self._places)
        return LogEnds(keys[by_key], LogEndArrays(*(column[order] for column in ends)), counts, self.topic_keys)

    def to_table(self) -> pa.Table:
        source = pa.array(self._ends.source)
        columns = (pa.array([place[part] for place in self._places]) for part in range(2))
        return pa.table([*(each.take(source) for each in columns), *map(pa.array, self._ends[1:])], _SAMPLE.names).cast(
            _SAMPLE
        )

    @classmethod
    def from_table(cls, table: pa.Table, intervals: int) -> Self:
        topic, partition = (table.column(name).to_pylist() for name in _SAMPLE.names[:2])
        at_ms, offset, start = (table.column(name).to_numpy().astype(np.int64) for name in _SAMPLE.names[2:])
        history = cls(intervals)
        history.add(LogEndLook([*map(TopicPartition, topic, partition)], at_ms, offset, start, {*topic}))
        return history


@dataclass(slots=True)
class LogEndsFromKafka:
    """Polls Kafka for log ends at the interval ``every``, between batches too if a thread calls `ask_if_due`.

    As in Burrow, the log end for a commit's lag is at most ``every`` older than the commit. If Kafka does not answer,
    ``tell`` gets a summary, because commits on a partition without a log end are dropped.
    """

    kafka: LogEndReader
    every: timedelta
    tell: Callable[[PollSummary], object]
    clock: Clock

    _lock: Lock = field(default_factory=Lock)
    _next_ms: float = 0
    _counts: Mapping[str, int] = field(default_factory=dict)
    _asked: list[TopicPartition] = field(default_factory=list)
    _topics: frozenset[str] = frozenset()
    _polls: list[LogEndLook] = field(default_factory=list)

    def look(self, topics: Collection[str], between_ms: tuple[int, int]) -> LogEndLook | None:
        """Return the log ends polled since the last call. Polls Kafka first if a topic is new or a poll is due."""
        with self._lock:
            if self._is_due() or not self._topics.issuperset(topics):
                self._poll(frozenset(topics), between_ms[1])
            polls, self._polls = self._polls, []
        if not polls:
            return None
        places = [*chain.from_iterable(each.places for each in polls)]
        at_ms, offset, start = (np.concatenate(column) for column in zip(*(each[1:4] for each in polls), strict=True))
        return LogEndLook(places, at_ms, offset, start, polls[-1].topics)

    def ask_if_due(self) -> None:
        """Poll Kafka, if due, for the topics of the last call of `look`. The next call of `look` returns the result."""
        with self._lock:
            if self._topics and self._is_due():
                self._poll(self._topics, self.clock.wall_ms())

    def _is_due(self) -> bool:
        return self.clock.boot_ms() >= self._next_ms

    def _poll(self, topics: frozenset[str], at_ms: int) -> None:
        self._next_ms = self.clock.boot_ms() + self.every.total_seconds() * 1000
        try:
            counts = self.kafka.partitions(topics)
            if counts != self._counts:
                self._asked = [
                    TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
                ]
                self._counts = counts
            starts = self.kafka.log_starts(self._asked)  # first, so that no log end is below its log start
            found = self.kafka.log_ends(self._asked)
        except ClusterError as error:
            self.tell(PollSummary(problem=str(error)))
            return
        self._topics = topics
        ends = ((place, found.get(place)) for place in self._asked)
        known = {place: end for place, end in ends if isinstance(end, int)}
        offset = np.fromiter(known.values(), np.int64, len(known))
        start = np.array([start if isinstance(start := starts.get(place), int) else 0 for place in known], np.int64)
        self._polls.append(LogEndLook([*known], np.full(len(known), at_ms), offset, start, counts))
        if len(self._polls) > _MOST_POLLS:  # a receiver is unreachable, so no batch uses the polls
            del self._polls[::2]
