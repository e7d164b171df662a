"""Keeps each partition's recent log ends in arrays in the driver, for a judge of all its groups."""

from dataclasses import dataclass, field
from itertools import compress
from typing import Final, Self

import numpy as np
import pyarrow as pa

from karrot.event import TopicPartition
from karrot.pipeline.offsets.log_ends import LogEndLook
from karrot.pipeline.window_arrays.judge_windows import Bools, Ints, LogEndArrays

LOG_ENDS: Final = "topic string, partition int, at_ms bigint, offset bigint, start bigint"
"""The columns of `KeptLogEnds.to_table`."""

NEVER_MS: Final = 2**60
_SAMPLE: Final = pa.schema(
    {"topic": pa.string(), "partition": pa.int32(), **dict.fromkeys(("at_ms", "offset", "start"), pa.int64())}
)


@dataclass(slots=True)
class KeptLogEnds:
    """The log ends, sorted by partition and time, at most one for each partition and time.

    In ``ends``, ``source`` is the number of a log end's partition in ``places``.
    """

    places: dict[TopicPartition, int] = field(default_factory=dict)
    ends: LogEndArrays = field(default_factory=lambda: LogEndArrays(*np.zeros((4, 0), np.int64)))

    def add(self, look: LogEndLook, now_ms: int = NEVER_MS) -> None:
        """Add new log ends. No time is then later than ``now_ms``, even if a clock was ahead."""
        numbers = (self.places.setdefault(place, len(self.places)) for place in look.places)
        source = np.fromiter(numbers, np.int64, len(look.places))
        at_ms = np.minimum(look.at_ms, now_ms)
        self.ends.observed_ms[self.ends.observed_ms > now_ms] = at_ms.min(initial=now_ms) - 1
        columns = [np.append(*each) for each in zip(self.ends, (source, at_ms, look.offset, look.start), strict=True)]
        by_time = np.lexsort((columns[1], columns[0]))
        self.ends = LogEndArrays(*(column[by_time] for column in columns))
        source, at_ms = self.ends[:2]
        is_last = np.ones(len(source), np.bool_)
        is_last[:-1] = (source[1:] != source[:-1]) | (at_ms[1:] != at_ms[:-1])
        self.keep(is_last)

    def keep(self, is_kept: Bools) -> None:
        """Drop the other log ends, and the partitions without a log end."""
        source = self.ends.source[is_kept]
        has_end = np.zeros(len(self.places), np.bool_)
        has_end[source] = True
        self.ends = LogEndArrays((np.cumsum(has_end) - 1)[source], *(each[is_kept] for each in self.ends[1:]))
        self.places = {place: number for number, place in enumerate(compress(self.places, has_end))}

    def last(self) -> Ints:
        """The index of each partition's newest log end in ``ends``."""
        return np.searchsorted(self.ends.source, np.arange(len(self.places)), "right") - 1

    def to_table(self) -> pa.Table:
        source = pa.array(self.ends.source)
        columns = (pa.array([place[part] for place in self.places]) for part in range(2))
        return pa.table([*(each.take(source) for each in columns), *map(pa.array, self.ends[1:])], _SAMPLE.names).cast(
            _SAMPLE
        )

    def load(self, table: pa.Table) -> Self:
        """Add the rows of `to_table`, and return this object."""
        if len(table):
            topic, partition, *columns = (table.column(name).to_numpy() for name in _SAMPLE.names)
            at_ms, offset, start = (column.astype(np.int64) for column in columns)
            places = [*map(TopicPartition, topic.tolist(), partition.tolist())]
            self.add(LogEndLook(places, at_ms, offset, start, {*topic}))
        return self
