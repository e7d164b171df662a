"""Computes Burrow's verdicts on partitions at regular times, by several sets of rules at once, in arrays.

The rules are those of `karrot.burrow.rules`, the storage is that of `karrot.burrow.storage`. A verdict depends on the
window of commits, which changes only with a commit, and on the log end and the time. So each window is examined once,
however many sets of rules share it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karrot.event import Status
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
from karrot.pipeline.replay.commit_windows import Windows, windows
from karrot.pipeline.replay.rule_sets import RuleSet

Codes = npt.NDArray[np.int8]
"""Burrow's numbers of statuses."""


class VerdictTimes(NamedTuple):
    """From when to when verdicts are given, both included, and how often: epoch seconds, multiples of ``every``."""

    first: int
    last: int
    every: int


class Verdicts(NamedTuple):
    """Verdicts by ``segment`` and, within one, by time: one array of ``codes`` for each set of rules."""

    segment: Ints
    at: Ints
    codes: Sequence[Codes]


class _Looks(NamedTuple):
    """What is known of a segment ``at`` a moment: its newest commit and its source's newest log end, by index."""

    segment: Ints
    at: Ints
    commit: Ints
    end: Ints


def evaluate(
    commits: CommitArrays, ends: LogEndArrays, segments: Segments, rule_sets: Sequence[RuleSet], span: VerdictTimes
) -> Verdicts:
    """The verdicts on each segment of commits that are `stored`, from the first one until the group is gone.

    What was seen up to a moment is known then.
    """
    looks = _looks(commits, ends, segments, span)
    if not len(looks.at):
        return Verdicts(looks.segment, looks.at, [np.zeros(0, np.int8) for _ in rule_sets])
    now, end = looks.at, ends.offset[looks.end]
    kept = {
        kind: _windows_of(looks, commits, *kind) for kind in {(one.intervals, one.min_distance) for one in rule_sets}
    }
    least = {intervals: recent_least(ends, intervals)[looks.end] for intervals in {one.intervals for one in rule_sets}}
    codes = [judged(kept[one.intervals, one.min_distance], end, least[one.intervals], now, one) for one in rule_sets]
    return Verdicts(looks.segment, looks.at, codes)


def judged(window: Windows, end: Ints, recent_least_end: Ints, now: Ints, rules: RuleSet) -> Codes:
    """Burrow's verdict on each window: the first that applies.

    ``end`` is the newest log end at ``now`` (epoch seconds), ``recent_least_end`` the least of those seen lately.
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


def _windows_of(looks: _Looks, commits: CommitArrays, intervals: int, min_distance: int) -> Windows:
    """The window that each look finds; looks without a commit between them find the same one."""
    is_other = begins(looks.commit)
    found = windows(commits, looks.commit[is_other], intervals=intervals, min_distance=min_distance)
    of_look = np.cumsum(is_other) - 1
    return Windows(*(column[of_look] for column in found))


def _looks(commits: CommitArrays, ends: LogEndArrays, segments: Segments, span: VerdictTimes) -> _Looks:
    starts = np.flatnonzero(begins(commits.segment))
    segment = commits.segment[starts]
    first = np.maximum(-(-commits.seen_ms[starts] // (span.every * 1000)) * span.every, span.first)
    last = np.minimum(-(-segments.until_ms[segment] // 1000) - 1, span.last)
    number = np.maximum(0, (last - first) // span.every + 1)
    of_segment = np.repeat(segment, number)
    nth = np.arange(len(of_segment)) - np.repeat(np.cumsum(number) - number, number)
    at = np.repeat(first, number) + nth * span.every
    return _Looks(
        of_segment,
        at,
        newest(commits.segment, commits.seen_ms, of_segment, at * 1000),
        newest(ends.source, ends.observed_ms, segments.source[of_segment], at * 1000),
    )
