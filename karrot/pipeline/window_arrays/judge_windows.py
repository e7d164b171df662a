"""Holds commits and log ends of many partitions in arrays, and judges all of Burrow's windows of commits at once.

Times are epoch milliseconds, offsets and lags are messages. A *source* is a partition of a topic. A *segment* is the
commits of one consumer group on a source, from its first commit until Kafka deleted the group or Burrow forgot it.

Commits of one partition arrive in log order, so Burrow only appends commits to a window. A window is then a range of
slots, and a slot is one commit or several merged commits. The rules are those of `karrot.burrow.rules`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from karrot.burrow import rules as burrow_rules
from karrot.event import OffsetSample, Status
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class LogEndArrays(NamedTuple):
    """Log-end samples, sorted by ``source`` and then by time. ``start`` is the log start, or 0 if it is unknown."""

    source: Ints
    observed_ms: Ints
    offset: Ints
    start: Ints


class CommitArrays(NamedTuple):
    """Commits, sorted by ``segment`` and then by arrival. Within a segment, ``seen_ms`` never decreases.

    ``order`` is the record's offset in ``__consumer_offsets``. ``end`` is the `unread_end` of the newest log end known
    at ``seen_ms``.
    """

    segment: Ints
    seen_ms: Ints
    order: Ints
    offset: Ints
    timestamp_ms: Ints
    end: Ints

    @property
    def lag(self) -> Ints:
        lag: Ints = np.maximum(0, self.end - self.offset)
        return lag


class Segments(NamedTuple):
    """The ``source`` of each segment, and ``until_ms``, the time from which the segment's group is gone."""

    source: Ints
    until_ms: Ints


def begins(part: Ints) -> Bools:
    """Mark the first element of each run of equal numbers."""
    first = np.ones(len(part), np.bool_)
    first[1:] = part[1:] != part[:-1]
    return first


def newest(part: Ints, at_ms: Ints, of_part: Ints, until_ms: Ints) -> Ints:
    """Return the index of each part's newest entry that is not later than ``until_ms``, or -1 if there is none.

    One binary search finds all entries, because part and time are combined into one ascending number.
    """
    if not len(part):
        return np.full(len(of_part), -1, np.int64)
    base = at_ms.min() - 1
    span = at_ms.max() - base + 1
    asked = of_part * span + np.clip(until_ms - base, 0, span - 1)
    found = np.searchsorted(part * span + (at_ms - base), asked, side="right") - 1
    return np.where((found >= 0) & (part[found] == of_part), found, -1)


def unread_end(ends: LogEndArrays, at: Ints, offset: Ints) -> Ints:
    """Return the log ends ``at`` less the messages after ``offset`` that Kafka has deleted, as in `readable`."""
    return offset + np.maximum(0, ends.offset[at] - np.maximum(offset, ends.start[at]))


def beyond_end(ends: LogEndArrays, at: Ints, offset: Ints, seen_ms: Ints) -> Bools:
    """Whether ``offset`` is past the log end ``at``, and past the log end before. Both must be newer than the commit.

    Like `karrot.watch`: if a broker has just become leader, one log end can be too low.
    """
    before = np.maximum(at - 1, 0)
    are_newer = (at > 0) & (ends.source[before] == ends.source[at]) & (ends.observed_ms[before] > seen_ms)
    found: Bools = are_newer & (np.maximum(ends.offset[before], ends.offset[at]) < offset)
    return found


def recent_least(ends: LogEndArrays, samples: int) -> Ints:
    """Return, for each log end, the lowest of the source's last ``samples`` log ends, this log end included.

    If a log had no messages, the lowest is -1: then no group had anything to read.
    """
    least, width = np.where(ends.offset > ends.start, ends.offset, -1), 1
    while width < min(samples, len(least)):
        step = min(width, samples - width)
        same = ends.source[step:] == ends.source[:-step]
        later = np.where(same, np.minimum(least[step:], least[:-step]), least[step:])
        least, width = np.concatenate([least[:step], later]), width + step
    return least


def stored(commits: CommitArrays, ends: LogEndArrays, segments: Segments, expire_group: int) -> CommitArrays:
    """Select the commits that Burrow's storage keeps, and add the log end with which each commit's lag is computed.

    The storage drops commits on a partition whose log end is still unknown, commits that are older than
    ``expire_group`` seconds when they are seen, and repeated commits.
    """
    end = newest(ends.source, ends.observed_ms, segments.source[commits.segment], commits.seen_ms)
    fresh = commits.timestamp_ms >= (commits.seen_ms // 1000 - expire_group) * 1000
    measured = commits._replace(end=unread_end(ends, end, commits.offset)) if len(ends.offset) else commits
    known = _taken(measured, (end >= 0) & fresh)
    return _taken(known, begins(known.segment) | begins(known.order))


def _taken(commits: CommitArrays, kept: Bools) -> CommitArrays:
    return commits if kept.all() else CommitArrays(*(column[kept] for column in commits))


_SPAN = 2**40  # 34 years in milliseconds: the timestamps of a healthy partition never differ by so much


class Slots(NamedTuple):
    """The slots of commits.

    ``of[i]`` is the slot of commit ``i``. ``last`` is the newest commit of each slot, ``timestamp_ms`` the timestamp of
    the slot's oldest commit.
    """

    of: Ints
    first_of_segment: Ints
    last: Ints
    timestamp_ms: Ints


def odd_segments(commits: CommitArrays) -> Bools:
    """Whether each segment is odd: a commit came out of order, or timestamps differ by decades."""
    starts = np.flatnonzero(begins(commits.segment))
    out_of_order = np.zeros(len(commits.order), np.bool_)
    out_of_order[1:] = (commits.order[1:] <= commits.order[:-1]) & (commits.segment[1:] == commits.segment[:-1])
    odd = np.zeros(int(commits.segment[-1]) + 1, np.bool_)
    lowest, highest = (each.reduceat(commits.timestamp_ms, starts) for each in (np.minimum, np.maximum))
    # The difference of two 64-bit numbers may overflow, but the difference of their halves may not.
    too_wide = highest // 2 - lowest // 2 >= _SPAN // 4
    odd[commits.segment[starts]] = np.logical_or.reduceat(out_of_order, starts) | too_wide
    return odd


def slots_of(commits: CommitArrays, min_distance_ms: int) -> Slots:
    """Make the slots. A commit joins the previous slot if it is older, or less than ``min_distance_ms`` newer."""
    is_first = begins(commits.segment)
    of_segment = np.cumsum(is_first) - 1
    start = np.flatnonzero(is_first)
    # Only odd segments exceed these bounds, and the slots of odd segments are not used.
    since_start = np.clip(commits.timestamp_ms - commits.timestamp_ms[start][of_segment], -_SPAN // 2, _SPAN // 2)
    own = of_segment * _SPAN + since_start
    highest = np.maximum.accumulate(np.where(since_start < 0, of_segment * _SPAN, own))
    is_new = is_first.copy()
    is_new[1:] |= own[1:] - highest[:-1] >= min_distance_ms
    if min_distance_ms:
        is_new = _far_apart(is_first, is_new, highest, min_distance_ms)
    first = np.flatnonzero(is_new)
    of = np.cumsum(is_new) - 1
    return Slots(of, of[start][of_segment], np.append(first[1:], len(of)) - 1, commits.timestamp_ms[first])


def _far_apart(is_first: Bools, is_new: Bools, highest: Ints, min_distance_ms: int) -> Bools:
    """Mark the commits that begin a slot: the first commits at least ``min_distance_ms`` after the previous beginning.

    A loop from slot to slot would need one step per slot. This loop doubles its step, so it needs few steps.
    """
    if is_new.all():
        return is_new
    following = np.append(np.searchsorted(highest, highest + min_distance_ms), len(highest))
    next_segment = np.append(np.flatnonzero(is_first)[1:], len(highest))
    following[:-1] = np.minimum(following[:-1], next_segment[np.cumsum(is_first) - 1])
    reached = np.append(is_first, True)
    while True:
        ahead = following[np.flatnonzero(reached)]
        if reached[ahead].all():
            return reached[:-1]
        reached[ahead] = True
        following = following[following]


UNKNOWN_LAG = np.iinfo(np.int64).max
Codes = npt.NDArray[np.int8]
"""Statuses as Burrow's numbers."""


class Windows(NamedTuple):
    """Windows right after their newest commit. The fields are the facts that the rules need.

    ``least_lag`` is the lowest known lag of a window, or `UNKNOWN_LAG` if no lag is known.
    """

    offset: Ints
    first_ms: Ints
    last_ms: Ints
    filled: Ints
    least_lag: Ints
    rewound: Bools
    stalled: Bools
    not_decreasing: Bools

    @classmethod
    def of(cls, offset: Ints, lag: Ints, first_ms: Ints, last_ms: Ints, filled: Ints) -> Self:
        """Compute the facts of windows. A row of ``offset`` and ``lag`` has the slots of a window, oldest first.

        If a window is not full, its oldest slot is repeated, which changes no verdict.
        """
        return cls(
            offset=offset[:, -1],
            first_ms=first_ms,
            last_ms=last_ms,
            filled=filled,
            least_lag=lag.min(axis=1),
            rewound=_rewound(offset),
            stalled=(offset == offset[:, :1]).all(axis=1),
            not_decreasing=np.logical_and.reduce(lag[:, 1:] >= lag[:, :-1], axis=1),
        )


def judged(window: Windows, end: Ints, recent_least_end: Ints, now: Ints, rules: RuleSet) -> Codes:
    """Return Burrow's verdict on each window, by the first rule that applies.

    ``end`` is the `unread_end` at ``now`` (epoch seconds). ``recent_least_end`` is the lowest recent log end.
    """
    complete = (window.filled / rules.intervals).astype(np.float32) >= np.float32(rules.minimum_complete)
    is_judged = (end - window.offset > rules.allowed_lag) & complete
    is_late = now * 1000 - window.last_ms > window.last_ms - window.first_ms
    always_lags = window.least_lag > rules.allowed_lag
    first_that_applies: list[tuple[Bools, Status]] = [
        (~is_judged, Status.OK),
        (is_late & (recent_least_end > window.offset), Status.STOP),
        (window.rewound, Status.REWIND),
        (always_lags & window.stalled, Status.STALL),
        (always_lags & window.not_decreasing, Status.WARN),
    ]
    conditions = [condition for condition, _ in first_that_applies]
    return np.select(conditions, [int(status) for _, status in first_that_applies], Status.OK).astype(np.int8)


def facts_of(kept: Sequence[OffsetSample]) -> dict[str, int]:
    """Compute the facts of a window with the commits ``kept``, by the reference model."""
    rewind = burrow_rules.rewind_index(kept)
    return {
        "offset": kept[-1].offset,
        "first_ms": kept[0].timestamp_ms,
        "last_ms": kept[-1].timestamp_ms,
        "filled": len(kept),
        "least_lag": min((sample.lag for sample in kept if sample.lag is not None), default=UNKNOWN_LAG),
        "rewound": rewind is not None and not burrow_rules.has_recovered(kept, rewind),
        "stalled": burrow_rules.is_stalled(kept),
        "not_decreasing": burrow_rules.is_lag_not_decreasing(kept),
    }


def _rewound(offset: Ints) -> Bools:
    """Whether a window's offset decreased, and stayed below its value before the first decrease."""
    falls = offset[:, 1:] < offset[:, :-1]
    found: Bools = np.logical_or.reduce(falls, axis=1)
    fallen = np.flatnonzero(found)
    if not len(fallen):
        return found
    before = falls[fallen].argmax(axis=1)
    lost = offset[fallen, before]
    after = np.arange(offset.shape[1]) > before[:, None]
    found[fallen] = ~((offset[fallen] >= lost[:, None]) & after).any(axis=1)
    return found
