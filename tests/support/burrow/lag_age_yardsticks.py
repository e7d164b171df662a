"""Reimplements how two other exporters find the lag in seconds, as yardsticks for Karrot's.

Both poll Kafka itself, so they know the exact log end at each poll, and both show the value of their last poll.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol


class Polled(NamedTuple):
    """What an exporter learns at one poll: the committed offset, the log end, and when each message was written."""

    at: float
    committed: int
    end: int
    written: Sequence[float]


class Yardstick(Protocol):
    """One exporter: ``poll`` returns the lag in seconds that it shows until its next poll."""

    every: float

    def poll(self, seen: Polled) -> float | None:
        """Take one poll."""


class LookupTable:
    """kafka-lag-exporter's ``LookupTable.scala``: 60 points, one per poll of 30 s.

    Interpolates between two points. Otherwise it extrapolates with the line from the oldest point to the newest.
    """

    every = 30.0

    def __init__(self, limit: int = 60) -> None:
        self._points: deque[tuple[float, int]] = deque(maxlen=limit)

    def poll(self, seen: Polled) -> float | None:
        points = self._points
        if len(points) > 1 and points[-1][1] == points[-2][1] == seen.end:
            points.pop()
        points.append((seen.at, seen.end))
        if seen.committed == seen.end:
            return 0.0
        if len(points) < 2:
            return None
        around = (pair for pair in pairwise(reversed(points)) if pair[1][1] <= seen.committed <= pair[0][1])
        (right_at, right), (left_at, left) = next(around, (points[-1], points[0]))
        if right == left:
            return None
        return seen.at - (right_at - (right - seen.committed) * (right_at - left_at) / (right - left))


class LogAnchors:
    """klag's ``KafkaOffsetTimestampInterpolator``: a line from the log's first message to its newest, every 60 s."""

    every = 60.0

    def poll(self, seen: Polled) -> float | None:
        newest = seen.end - 1
        if seen.committed >= seen.end:
            return 0.0
        if newest <= 0:
            return None
        if seen.committed >= newest:
            return seen.at - seen.written[newest]
        first, last = seen.written[0], seen.written[newest]
        return seen.at - (first + (last - first) * seen.committed / newest)
