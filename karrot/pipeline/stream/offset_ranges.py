"""Which offsets of a topic a batch of Spark's Kafka source has passed: what its checkpoint says.

The batch holds the records that were still there. Of the other offsets some never had a record that one may read
(markers and records of aborted transactions) or have it no more since a newer one took its place; but what lies before
the log's start was deleted, perhaps before anybody read it.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from karrot.pipeline.stream.checkpoints import Read

_INITIAL: Final = "sources/0/0"


class Range(NamedTuple):
    """From the offset ``first`` up to and without ``until``. Where ``until`` is the lower the topic was made anew."""

    first: int
    until: int

    def offsets(self, log_start: int) -> int:
        """How many offsets were passed; of a topic made anew all that it has by now."""
        return self.until - (self.first if self.first <= self.until else min(log_start, self.until))

    def lost(self, log_start: int, first_read: int | None) -> int:
        """How many of them lie before the log's start, and were not read before it moved."""
        if self.first > self.until:
            return self.offsets(log_start)
        before = min(log_start, self.until if first_read is None else first_read)
        return max(0, before - self.first)


def ranges_of_batch(read: Read, batch: int, topic: str) -> dict[int, Range]:
    """The range of each partition. Raises FileNotFoundError for a batch that the checkpoint does not know."""
    ends = _offsets(read, f"offsets/{batch}", topic)
    starts = _offsets(read, f"offsets/{batch - 1}" if batch else _INITIAL, topic)
    return {partition: Range(starts.get(partition, until), until) for partition, until in ends.items()}


def lost(ranges: Mapping[int, Range], log_starts: Mapping[int, int], first_read: Mapping[int, int]) -> int:
    """How many offsets of a batch were deleted before they were read; none of a partition whose start is not known."""
    return sum(
        ranges[partition].lost(start, first_read.get(partition))
        for partition, start in log_starts.items()
        if partition in ranges
    )


def _offsets(read: Read, name: str, topic: str) -> dict[int, int]:
    text = read(name)
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no {name}")
    told = json.loads(text.splitlines()[-1])
    return {int(partition): offset for partition, offset in told.get(topic, {}).items()}
