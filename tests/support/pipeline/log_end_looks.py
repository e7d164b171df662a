"""Log ends for the tests of the judges."""

from collections.abc import Collection, Iterable

import numpy as np

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.offsets.log_ends import LogEndLook


def look_of(samples: Iterable[tuple[TopicPartition, LogEnd]], topics: Collection[str]) -> LogEndLook:
    """Return a look with these log ends, and a log start of 0."""
    found = [*samples]
    at_ms, offset = np.array([[*end] for _, end in found], np.int64).reshape(-1, 2).T
    return LogEndLook([place for place, _ in found], at_ms, offset, np.zeros_like(offset), topics)
