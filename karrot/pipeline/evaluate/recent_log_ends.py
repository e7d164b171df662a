"""Keeps each partition's recent log ends in the driver, for the verdicts of all buckets."""

from collections import Counter

import numpy as np

from karrot.pipeline.evaluate.bucket_state import LogEnds, source_key
from karrot.pipeline.offsets.kept_log_ends import NEVER_MS, KeptLogEnds
from karrot.pipeline.offsets.log_ends import LogEndLook
from karrot.pipeline.window_arrays.judge_windows import LogEndArrays


class RecentLogEnds(KeptLogEnds):
    """The recent log ends of the partitions of the topics on which groups commit.

    ``topic_keys`` maps the topics' names to the names' hashes.
    """

    def __init__(self, intervals: int, topic_keys: dict[str, int] | None = None) -> None:
        super().__init__()
        self.intervals, self.topic_keys = intervals, topic_keys or {}

    def add(self, look: LogEndLook, now_ms: int = NEVER_MS) -> None:
        """Add new log ends, and drop the log ends of deleted topics."""
        super().add(look, now_ms)
        exists = np.array([place.topic in look.topics for place in self.places], np.bool_)
        self.keep(exists[self.ends.source])
        self.topic_keys = {topic: key for topic, key in self.topic_keys.items() if topic in look.topics}

    def forget_old(self) -> None:
        """Keep only the log ends that the next batch needs for Burrow's rules and for its first commit's lag."""
        kept, source = self.intervals + 1, self.ends.source
        is_kept = np.ones(len(source), np.bool_)
        is_kept[:-kept] = source[kept:] != source[:-kept]
        self.keep(is_kept)

    def as_arrays(self) -> LogEnds:
        keys = np.array([self.topic_keys.get(place.topic, 0) for place in self.places], np.int64)
        keys = source_key(keys, np.array([place.partition for place in self.places], np.int64))
        by_key = np.argsort(keys)
        row = np.empty_like(by_key)
        row[by_key] = np.arange(len(by_key))
        ends = LogEndArrays(row[self.ends.source], *self.ends[1:])
        order = np.argsort(ends.source, kind="stable")
        # The hash of a topic that was created again is not known before the next commit or assignment.
        counts = Counter(place.topic for place in self.places if place.topic in self.topic_keys)
        return LogEnds(keys[by_key], LogEndArrays(*(column[order] for column in ends)), counts, self.topic_keys)
