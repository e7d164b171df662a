"""Finds the recent log ends of the partitions of a bucket.

Names are slow in arrays, so the columns have hashes of names. Hashes have 64 bits. Two partitions with the same hash
would be mixed up. Among a million partitions, the probability of this is one in forty million.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from karrot.pipeline.window_arrays.commit_arrays import Ints, LogEndArrays

_ODD_NUMBER = -7046029254386353131  # mixes two hashes: 2**64 divided by the golden ratio, as a signed number


class LogEnds(NamedTuple):
    """The recent log ends of all partitions. A deleted topic has none.

    ``keys`` has the `source_key` of each partition, ascending. The source of a log end in ``ends`` is the index of its
    partition's key. ``topics`` has the number of partitions of each topic.
    """

    keys: Ints
    ends: LogEndArrays
    topics: Mapping[str, int]

    def source_of(self, keys: Ints) -> Ints:
        """The source of each of these keys; -1 for an unknown partition."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[found] == keys, found, -1)

    def only(self, keys: Ints) -> "LogEnds":
        """The log ends of the partitions with these keys. The topics stay."""
        source = np.unique(self.source_of(keys))
        source = source[source >= 0]
        first, stop = (np.searchsorted(self.ends.source, source, side) for side in ("left", "right"))
        count = stop - first
        rows = np.repeat(stop - np.cumsum(count), count) + np.arange(count.sum())
        ends = LogEndArrays(
            np.repeat(np.arange(len(source)), count), self.ends.observed_ms[rows], self.ends.offset[rows]
        )
        return LogEnds(self.keys[source], ends, self.topics)


def source_key(topic_key: Ints, partition: Ints) -> Ints:
    """The hash of a partition of a topic."""
    return topic_key * _ODD_NUMBER + partition
