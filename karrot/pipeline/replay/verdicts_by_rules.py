"""Computes Burrow's verdicts on partitions at regular times, for several sets of rules at once, in arrays.

The rules are those of `karrot.burrow.rules`, the storage is that of `karrot.burrow.storage`. A verdict depends on the
window of commits, on the log end and on the time. A window changes only with a commit. So each window is computed once
for all sets of rules that share it.

Commits from one log arrive in the order of their place in the log, so Burrow only appends them. Then a window is a
range of slots, and a slot is one commit or several merged commits. If a segment has another order, the reference model
itself computes its windows.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karrot.burrow import rules
from karrot.event import OffsetSample, Status
from karrot.pipeline.replay.commit_arrays import (
    Bools,
    CommitArrays,
    Ints,
    LogEndArrays,
    Segments,
    begins,
    newest,
    recent_least,
)
from karrot.pipeline.replay.rule_set_parser import RuleSet

_AT_ONCE = 65_536  # small enough for the processor's cache
_SPAN = 2**40  # 34 years in milliseconds, a longer time than a healthy partition's timestamps
_UNKNOWN = np.iinfo(np.int64).max
Codes = npt.NDArray[np.int8]
"""Burrow's numbers of statuses."""


class Windows(NamedTuple):
    """Windows, each as it is right after its newest commit. The fields are the facts that the rules need.

    ``least_lag`` is the lowest known lag of a window, or the largest number if no lag is known.
    """

    offset: Ints
    first_ms: Ints
    last_ms: Ints
    filled: Ints
    least_lag: Ints
    rewound: Bools
    stalled: Bools
    not_decreasing: Bools


class _Slots(NamedTuple):
    """The slots of commits.

    ``of`` is the slot of each commit. ``last`` is the newest commit of each slot, ``timestamp_ms`` the timestamp of the
    slot's oldest commit.
    """

    of: Ints
    first_of_segment: Ints
    last: Ints
    timestamp_ms: Ints


def windows(commits: CommitArrays, at: Ints, *, intervals: int, min_distance: int) -> Windows:
    """Compute the windows after the commits with the indices ``at``, ascending; ``min_distance`` is in seconds."""
    slots = _slots(commits, min_distance * 1000)
    blocks = [_facts(commits, slots, block, intervals) for block in np.array_split(at, len(at) // _AT_ONCE + 1)]
    found = Windows(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
    odd = _odd(commits)
    if odd.any():
        _ask_the_model(found, commits, at, odd, partial(rules.Window, intervals, min_distance))
    return found


def _odd(commits: CommitArrays) -> Bools:
    """Whether each segment is odd: a commit came out of order, or a timestamp must be wrong because it is far off."""
    starts = np.flatnonzero(begins(commits.segment))
    out_of_order = np.zeros(len(commits.order), np.bool_)
    out_of_order[1:] = (commits.order[1:] <= commits.order[:-1]) & (commits.segment[1:] == commits.segment[:-1])
    odd = np.zeros(int(commits.segment[-1]) + 1, np.bool_)
    lowest, highest = (each.reduceat(commits.timestamp_ms, starts) for each in (np.minimum, np.maximum))
    # The difference of two 64-bit numbers may overflow; the difference of their halves does not.
    too_wide = highest // 2 - lowest // 2 >= _SPAN // 4
    odd[commits.segment[starts]] = np.logical_or.reduceat(out_of_order, starts) | too_wide
    return odd


# --- Slots ---


def _slots(commits: CommitArrays, min_distance_ms: int) -> _Slots:
    """Make the slots. A commit joins the previous slot if it is less than ``min_distance_ms`` newer, or older."""
    is_first = begins(commits.segment)
    of_segment = np.cumsum(is_first) - 1
    start = np.flatnonzero(is_first)
    # Only the odd segments exceed these bounds, and their slots are not used.
    since_start = np.clip(commits.timestamp_ms - commits.timestamp_ms[start][of_segment], -_SPAN // 2, _SPAN // 2)
    own = of_segment * _SPAN + since_start
    highest = np.maximum.accumulate(np.where(since_start < 0, of_segment * _SPAN, own))
    is_new = is_first.copy()
    is_new[1:] |= own[1:] - highest[:-1] >= min_distance_ms
    if min_distance_ms:
        is_new = _far_apart(is_first, is_new, highest, min_distance_ms)
    first = np.flatnonzero(is_new)
    of = np.cumsum(is_new) - 1
    return _Slots(of, of[start][of_segment], np.append(first[1:], len(of)) - 1, commits.timestamp_ms[first])


def _far_apart(is_first: Bools, is_new: Bools, highest: Ints, min_distance_ms: int) -> Bools:
    """Mark the commits that begin a slot: each is the first that is far enough after the previous slot's beginning.

    A walk from slot to slot would need one step per slot. This loop doubles its step, so it needs few steps.
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


# --- The facts that the rules need ---


def _facts(commits: CommitArrays, slots: _Slots, at: Ints, intervals: int) -> Windows:
    newest, first = slots.of[at][:, None], slots.first_of_segment[at][:, None]
    # A window that is not full repeats its oldest slot, which changes no verdict.
    slot = np.maximum(newest - np.arange(intervals - 1, -1, -1), first)
    commit = np.where(slot == newest, at[:, None], slots.last[slot])
    offset, end = commits.offset[commit], commits.end[commit]
    lag = np.maximum(0, end - offset)
    return Windows(
        offset=offset[:, -1],
        first_ms=slots.timestamp_ms[slot[:, 0]],
        last_ms=slots.timestamp_ms[slot[:, -1]],
        filled=np.minimum(intervals, (newest - first)[:, 0] + 1),
        least_lag=lag.min(axis=1),
        rewound=_rewound(offset),
        stalled=(offset == offset[:, :1]).all(axis=1),
        not_decreasing=(lag[:, 1:] >= lag[:, :-1]).all(axis=1),
    )


def _rewound(offset: Ints) -> Bools:
    """Whether the offset decreased, and stayed below its value before the first decrease."""
    falls = offset[:, 1:] < offset[:, :-1]
    rewound: Bools = np.logical_or.reduce(falls, axis=1)
    fallen = np.flatnonzero(rewound)
    if not len(fallen):
        return rewound
    before = falls[fallen].argmax(axis=1)
    lost = offset[fallen, before]
    after = np.arange(offset.shape[1]) > before[:, None]
    rewound[fallen] = ~((offset[fallen] >= lost[:, None]) & after).any(axis=1)
    return rewound


# --- Segments that are not in order ---


def _ask_the_model(
    found: Windows, commits: CommitArrays, at: Ints, odd: Bools, new_window: Callable[[], rules.Window]
) -> None:
    """Replace the facts of the odd segments by those of the reference model."""
    rows = np.flatnonzero(odd[commits.segment[at]])
    for segment in np.unique(commits.segment[at[rows]]):
        wanted = rows[commits.segment[at[rows]] == segment]
        correct = _by_the_model(commits, int(segment), at[wanted], new_window())
        for row, facts in zip(wanted, correct, strict=True):
            for name, value in facts.items():
                getattr(found, name)[row] = value


def _by_the_model(commits: CommitArrays, segment: int, at: Ints, window: rules.Window) -> Iterator[dict[str, int]]:
    seen = int(np.searchsorted(commits.segment, segment))
    for until in at:
        for each in range(seen, int(until) + 1):
            window.add(
                int(commits.offset[each]),
                order=int(commits.order[each]),
                timestamp_ms=int(commits.timestamp_ms[each]),
                broker_offset=int(commits.end[each]),
            )
        seen = int(until) + 1
        yield facts_of([slot for slot in window.slots if slot])


def facts_of(kept: Sequence[OffsetSample]) -> dict[str, int]:
    """Compute the facts of one window with these commits, by the reference model."""
    rewind = rules.rewind_index(kept)
    return {
        "offset": kept[-1].offset,
        "first_ms": kept[0].timestamp_ms,
        "last_ms": kept[-1].timestamp_ms,
        "filled": len(kept),
        "least_lag": min((sample.lag for sample in kept if sample.lag is not None), default=_UNKNOWN),
        "rewound": rewind is not None and not rules.has_recovered(kept, rewind),
        "stalled": rules.is_stalled(kept),
        "not_decreasing": rules.is_lag_not_decreasing(kept),
    }


class VerdictTimes(NamedTuple):
    """The times of verdicts: every ``every`` seconds from ``first`` to ``last``, both included.

    ``first`` and ``last`` are epoch seconds, and multiples of ``every``.
    """

    first: int
    last: int
    every: int


class Verdicts(NamedTuple):
    """Verdicts, ordered by ``segment`` and then by time, with one array of ``codes`` for each set of rules."""

    segment: Ints
    at: Ints
    codes: Sequence[Codes]


class _Moments(NamedTuple):
    """The times (``at``) of the verdicts on each segment, with the indices of its newest commit and log end."""

    segment: Ints
    at: Ints
    commit: Ints
    end: Ints


def evaluate(
    commits: CommitArrays, ends: LogEndArrays, segments: Segments, rule_sets: Sequence[RuleSet], span: VerdictTimes
) -> Verdicts:
    """Judge each segment of `stored` commits until its group is gone, at each time by the records seen until then."""
    moments = _moments(commits, ends, segments, span)
    if not len(moments.at):
        return Verdicts(moments.segment, moments.at, [np.zeros(0, np.int8) for _ in rule_sets])
    now, end = moments.at, ends.offset[moments.end]
    kept = {
        kind: _windows_of(moments, commits, *kind) for kind in {(one.intervals, one.min_distance) for one in rule_sets}
    }
    least = {number: recent_least(ends, number)[moments.end] for number in {one.intervals for one in rule_sets}}
    codes = [judged(kept[one.intervals, one.min_distance], end, least[one.intervals], now, one) for one in rule_sets]
    return Verdicts(moments.segment, moments.at, codes)


def judged(window: Windows, end: Ints, recent_least_end: Ints, now: Ints, rules: RuleSet) -> Codes:
    """Burrow's verdict on each window, by the first rule that applies.

    ``end`` is the newest log end at ``now`` (epoch seconds), ``recent_least_end`` the lowest of the recent log ends.
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


def _windows_of(moments: _Moments, commits: CommitArrays, intervals: int, min_distance: int) -> Windows:
    """The window at each moment. Moments without a commit between them share a window."""
    is_other = begins(moments.commit)
    found = windows(commits, moments.commit[is_other], intervals=intervals, min_distance=min_distance)
    of_moment = np.cumsum(is_other) - 1
    return Windows(*(column[of_moment] for column in found))


def _moments(commits: CommitArrays, ends: LogEndArrays, segments: Segments, span: VerdictTimes) -> _Moments:
    starts = np.flatnonzero(begins(commits.segment))
    segment = commits.segment[starts]
    first = np.maximum(-(-commits.seen_ms[starts] // (span.every * 1000)) * span.every, span.first)
    last = np.minimum(-(-segments.until_ms[segment] // 1000) - 1, span.last)
    number = np.maximum(0, (last - first) // span.every + 1)
    of_segment = np.repeat(segment, number)
    nth = np.arange(len(of_segment)) - np.repeat(np.cumsum(number) - number, number)
    at = np.repeat(first, number) + nth * span.every
    return _Moments(
        of_segment,
        at,
        newest(commits.segment, commits.seen_ms, of_segment, at * 1000),
        newest(ends.source, ends.observed_ms, segments.source[of_segment], at * 1000),
    )
