"""Holds commits and log ends of many partitions in arrays, one partition after the other.

Times are epoch milliseconds, offsets and lags are messages. A *source* is a partition of a topic. A *segment* is the
commits of one consumer group on a source, from its first commit until Kafka deleted the group or Burrow forgot it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class LogEndArrays(NamedTuple):
    """Log-end samples, ordered by ``source`` and then by time."""

    source: Ints
    observed_ms: Ints
    offset: Ints


class CommitArrays(NamedTuple):
    """Commits, ordered by ``segment`` and then by arrival; within a segment, ``seen_ms`` never decreases.

    ``order`` is the commit's place in ``__consumer_offsets``. ``end`` is the newest log end known at ``seen_ms``.
    """

    segment: Ints
    seen_ms: Ints
    order: Ints
    offset: Ints
    timestamp_ms: Ints
    end: Ints

    @property
    def lag(self) -> Ints:
        """The lag when the commit was seen; never negative."""
        lag: Ints = np.maximum(0, self.end - self.offset)
        return lag


class Segments(NamedTuple):
    """The ``source`` of each segment, and ``until_ms``, the moment from which the segment's group is gone."""

    source: Ints
    until_ms: Ints


def begins(part: Ints) -> Bools:
    """Mark the first element of each part, in an array that is ordered by part."""
    first = np.ones(len(part), np.bool_)
    first[1:] = part[1:] != part[:-1]
    return first


def newest(part: Ints, at_ms: Ints, of_part: Ints, until_ms: Ints) -> Ints:
    """Return, for each part in ``of_part``, the index of its newest entry at ``until_ms``; -1 if it has none yet.

    One binary search finds all entries, because part and time together make one ascending number.
    """
    if not len(part):
        return np.full(len(of_part), -1, np.int64)
    base = at_ms.min() - 1
    span = at_ms.max() - base + 1
    asked = of_part * span + np.clip(until_ms - base, 0, span - 1)
    found = np.searchsorted(part * span + (at_ms - base), asked, side="right") - 1
    return np.where((found >= 0) & (part[found] == of_part), found, -1)


def recent_least(ends: LogEndArrays, samples: int) -> Ints:
    """For each log end, the lowest of the last ``samples`` log ends of its source, this log end included."""
    least, width = ends.offset, 1
    while width < min(samples, len(least)):
        step = min(width, samples - width)
        same = ends.source[step:] == ends.source[:-step]
        later = np.where(same, np.minimum(least[step:], least[:-step]), least[step:])
        least, width = np.concatenate([least[:step], later]), width + step
    return least


def stored(commits: CommitArrays, ends: LogEndArrays, segments: Segments, expire_group: int) -> CommitArrays:
    """Select the commits that Burrow's storage keeps, and add the log end that gives each commit's lag.

    The storage drops commits on a partition whose log end is still unknown, commits that are older than
    ``expire_group`` seconds when they are seen, and repeated commits.
    """
    end = newest(ends.source, ends.observed_ms, segments.source[commits.segment], commits.seen_ms)
    fresh = commits.timestamp_ms >= (commits.seen_ms // 1000 - expire_group) * 1000
    measured = commits._replace(end=ends.offset[end]) if len(ends.offset) else commits
    known = _taken(measured, (end >= 0) & fresh)
    return _taken(known, begins(known.segment) | begins(known.order))


def _taken(commits: CommitArrays, kept: Bools) -> CommitArrays:
    return commits if kept.all() else CommitArrays(*(column[kept] for column in commits))
