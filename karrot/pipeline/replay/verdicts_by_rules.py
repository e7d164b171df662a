"""Computes Burrow's verdicts on partitions at regular times, for several sets of rules at once, in arrays.

The rules are those of `karrot.burrow.rules`, and the storage is Burrow's. A verdict depends on the
window of commits, on the log end and on the time. A window changes only with a commit. So each window is computed once
for all sets of rules that share it.

If the commits of a segment (see `karrot.pipeline.window_arrays.windows`) are not in the order of the log, the
reference model itself computes the windows of the segment.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from karrot.burrow import rules
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.pipeline.window_arrays.windows import (
    Bools,
    Codes,
    CommitArrays,
    Ints,
    LogEndArrays,
    Segments,
    Slots,
    Windows,
    begins,
    facts_of,
    judged,
    newest,
    odd_segments,
    recent_least,
    slots_of,
)

_AT_ONCE = 65_536  # small enough for the processor's cache


def windows(commits: CommitArrays, at: Ints, *, intervals: int, min_distance: int) -> Windows:
    """Compute the windows after the commits with the indices ``at``, ascending; ``min_distance`` is in seconds."""
    slots = slots_of(commits, min_distance * 1000)
    blocks = [_facts(commits, slots, block, intervals) for block in np.array_split(at, len(at) // _AT_ONCE + 1)]
    found = Windows(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
    odd = odd_segments(commits)
    if odd.any():
        _ask_the_model(found, commits, at, odd, partial(rules.Window, intervals, min_distance))
    return found


def _facts(commits: CommitArrays, slots: Slots, at: Ints, intervals: int) -> Windows:
    newest, first = slots.of[at][:, None], slots.first_of_segment[at][:, None]
    slot = np.maximum(newest - np.arange(intervals - 1, -1, -1), first)
    commit = np.where(slot == newest, at[:, None], slots.last[slot])
    offset, end = commits.offset[commit], commits.end[commit]
    lag = np.maximum(0, end - offset)
    first_ms, last_ms = slots.timestamp_ms[slot[:, 0]], slots.timestamp_ms[slot[:, -1]]
    return Windows.of(offset, lag, first_ms, last_ms, np.minimum(intervals, (newest - first)[:, 0] + 1))


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
    """Judge each segment of `stored` commits at each time of ``span`` until its group is gone.

    Each verdict uses only the records that were seen up to its time.
    """
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
