"""Burrow's verdicts on partitions at regular moments, by several sets of rules at once, in whole arrays.

The rules are those of `karrot.burrow.rules`, the storage that of `karrot.burrow.storage`. A verdict depends on the
window of commits, which changes with a commit alone, and on the log end and the time: so windows are looked into once,
however many sets of rules share them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karrot.event import Status
from karrot.pipeline.replay.rules import RuleSet
from karrot.pipeline.replay.streams import Bools, Commits, Ends, Ints, Segments, begins, newest, recent_least
from karrot.pipeline.replay.windows import Windows, windows

__all__ = ["Codes", "Span", "Verdicts", "evaluate"]

Codes = npt.NDArray[np.int8]
"""Burrow's numbers of statuses."""


class Span(NamedTuple):
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


def evaluate(commits: Commits, ends: Ends, segments: Segments, rule_sets: Sequence[RuleSet], span: Span) -> Verdicts:
    """The verdicts on each segment of commits that are `stored`, from the first one until the group is gone.

    What was seen up to a moment is known then.
    """
    looks = _looks(commits, ends, segments, span)
    if not len(looks.at):
        return Verdicts(looks.segment, looks.at, [np.zeros(0, np.int8) for _ in rule_sets])
    # Ascending, as the looks are.
    is_other = begins(looks.commit)
    at, of_look = looks.commit[is_other], np.cumsum(is_other) - 1
    shared = {
        kind: windows(commits, at, intervals=kind[0], min_distance=kind[1])
        for kind in {(each.intervals, each.min_distance) for each in rule_sets}
    }
    codes = [_judged(looks, of_look, shared[each.intervals, each.min_distance], ends, each) for each in rule_sets]
    return Verdicts(looks.segment, looks.at, codes)


def _looks(commits: Commits, ends: Ends, segments: Segments, span: Span) -> _Looks:
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


def _judged(looks: _Looks, of_look: Ints, kept: Windows, ends: Ends, rules: RuleSet) -> Codes:
    offset = kept.offset[of_look]
    lags = ends.offset[looks.end] - offset > rules.allowed_lag
    complete = (kept.filled / rules.intervals).astype(np.float32) >= np.float32(rules.minimum_complete)
    judged = lags & complete[of_look]
    codes = np.where(judged, _by_window(kept, rules)[of_look], np.int8(Status.OK)).astype(np.int8)
    codes[_stopped(looks, of_look, kept, ends, rules, judged)] = Status.STOP
    return codes


def _by_window(kept: Windows, rules: RuleSet) -> Codes:
    """The verdicts on partitions that lag and did not stop: they hold until the next commit."""
    always_lags = kept.least_lag > rules.allowed_lag
    choices = [kept.rewound, always_lags & kept.stalled, always_lags & kept.not_decreasing]
    return np.select(choices, [Status.REWIND, Status.STALL, Status.WARN], Status.OK).astype(np.int8)


def _stopped(looks: _Looks, of_look: Ints, kept: Windows, ends: Ends, rules: RuleSet, judged: Bools) -> Ints:
    """Which of the looks that are ``judged`` find that the newest commit is older than the commits are wide.

    Unless one of the log ends seen lately was within it: then there was nothing to read.
    """
    width = kept.last_ms - kept.first_ms
    late = np.flatnonzero(judged & (looks.at * 1000 - kept.last_ms[of_look] > width[of_look]))
    least = recent_least(ends, rules.intervals)
    stopped: Ints = late[least[looks.end[late]] > kept.offset[of_look[late]]]
    return stopped
