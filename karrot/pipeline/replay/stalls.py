"""When a consumer truly stood still: its committed offset did not change while there was more in the log.

What Burrow's rules try to find out, told by hindsight: to the moment, and whatever the rules.
"""

from typing import NamedTuple

import numpy as np

from karrot.pipeline.replay.commit_arrays import CommitArrays, Ints, LogEndArrays, Segments, begins


class Standstills(NamedTuple):
    """Stretches of a segment, in epoch milliseconds."""

    segment: Ints
    from_ms: Ints
    to_ms: Ints


def standstills(
    commits: CommitArrays, ends: LogEndArrays, segments: Segments, *, at_least_ms: int, until_ms: int
) -> Standstills:
    """The stretches of at least that length, up to ``until_ms``; ``commits`` are those that are `stored`.

    One begins with the commit after which the offset did not change, or once the log went beyond it; it ends with the
    commit of another offset, or with the group.
    """
    is_first = begins(commits.segment)
    moves = np.flatnonzero(is_first | begins(commits.offset))
    segment = commits.segment[moves]
    over = np.minimum(segments.until_ms[segment], until_ms)
    to_ms = np.where(np.append(segment[1:] == segment[:-1], False), np.roll(commits.seen_ms[moves], -1), over)
    from_ms = commits.seen_ms[moves].copy()
    # Few stretches are long, and of few of those must it be looked up when the log went on.
    long = to_ms - from_ms >= at_least_ms
    for each in np.flatnonzero(long & (commits.lag[moves] == 0)):
        source, offset = int(segments.source[segment[each]]), int(commits.offset[moves[each]])
        from_ms[each] = _grown_at(ends, source, offset, int(from_ms[each]))
    kept = to_ms - from_ms >= at_least_ms
    return Standstills(segment[kept], from_ms[kept], to_ms[kept])


def _grown_at(ends: LogEndArrays, source: int, offset: int, since_ms: int) -> int:
    """When the log of a source was first seen beyond an offset; the end of time if never."""
    begin, stop = np.searchsorted(ends.source, [source, source + 1])
    beyond = (ends.offset[begin:stop] > offset) & (ends.observed_ms[begin:stop] > since_ms)
    return int(ends.observed_ms[begin + beyond.argmax()]) if beyond.any() else np.iinfo(np.int64).max
