"""Holds Burrow's rings of commits of many partitions in arrays, and appends commits to all rings at once.

A ring is a row. Its slots are columns, oldest first, after the empty slots, as in `karrot.burrow.rules.Window`.
Commits from one log arrive in log order, so Burrow only appends commits. The new ring is then the last slots of the
old slots and the new commits. The reference model computes the rings whose commits are out of order.
"""

from typing import NamedTuple, Self

import numpy as np

from karrot.burrow.rules import Window
from karrot.event import OffsetSample
from karrot.pipeline.window_arrays.judge_windows import (
    Bools,
    CommitArrays,
    Ints,
    Slots,
    Windows,
    begins,
    facts_of,
    odd_segments,
    slots_of,
)

UNKNOWN = -1
"""The lag of a commit that came out of order."""


class RingArrays(NamedTuple):
    """Rings with the same number of slots. ``filled`` has the number of commits in each ring.

    The other fields have a row per ring and a column per slot. ``order`` is the record offset of a commit in
    ``__consumer_offsets``, and ``seen_ms`` the time at which the commit was seen.
    """

    order: Ints
    offset: Ints
    timestamp_ms: Ints
    lag: Ints
    seen_ms: Ints
    filled: Ints

    @classmethod
    def empty(cls, count: int, intervals: int) -> Self:
        slots = np.zeros((count, intervals), np.int64)
        return cls(slots, slots, slots, slots, slots, np.zeros(count, np.int64))

    @property
    def intervals(self) -> int:
        return int(self.order.shape[1])

    def taken(self, rows: Ints | Bools) -> Self:
        return type(self)(*(column[rows] for column in self))

    def joined(self, other: Self) -> Self:
        return type(self)(*map(np.concatenate, zip(self, other, strict=True)))

    def samples(self, row: int) -> list[OffsetSample]:
        return [self._sample(row, slot) for slot in range(self.intervals - int(self.filled[row]), self.intervals)]

    def sample(self, row: int, *, newest: bool) -> OffsetSample | None:
        filled = int(self.filled[row])
        return self._sample(row, self.intervals - (1 if newest else filled)) if filled else None

    def _sample(self, row: int, slot: int) -> OffsetSample:
        offset, timestamp_ms, lag, seen_ms = (int(column[row, slot]) for column in self[1:5])
        return OffsetSample(offset, timestamp_ms, observed_at_ms=seen_ms, lag=None if lag == UNKNOWN else lag)


def appended(rings: RingArrays, commits: CommitArrays, min_distance: int) -> tuple[RingArrays, Bools]:
    """Append commits to rings. Return the new rings, and whether each commit was its ring's newest on arrival.

    The segment of a commit is the row of its ring. Commits are sorted by segment and then by arrival.
    ``min_distance`` is in seconds.
    """
    rows = commits.segment[begins(commits.segment)]
    before = rings.taken(rows)
    joined, lag, is_new = _joined(before, commits)
    slots = slots_of(joined, min_distance * 1000)
    after = _newest_slots(joined, lag, slots, rings.intervals)
    odd = odd_segments(joined) if len(rows) else np.zeros(0, np.bool_)
    # An old commit that came out of order can be close to the next commit. Their two slots must not be merged now.
    merged = np.flatnonzero((slots.of[1:] == slots.of[:-1]) & ~is_new[1:]) + 1
    odd[joined.segment[merged]] = True
    is_newest = np.ones(len(commits.segment), np.bool_)
    of_row = np.cumsum(begins(commits.segment)) - 1
    for each in np.flatnonzero(odd):
        mine = np.flatnonzero(of_row == each)
        of_ring = CommitArrays(*(column[mine] for column in commits))
        is_newest[mine] = _by_the_model(before, after, int(each), of_ring, min_distance)
    made = RingArrays(*(column.copy() for column in rings))
    for column, changed in zip(made, after, strict=True):
        column[rows] = changed
    return made, is_newest


def windows_of(rings: RingArrays) -> Windows:
    """Return the facts that Burrow's rules need. The facts of an empty ring have no meaning."""
    oldest = np.minimum(rings.intervals - rings.filled, rings.intervals - 1)
    slot = np.maximum(np.arange(rings.intervals), oldest[:, None])
    offset, lag, timestamp_ms = (
        np.take_along_axis(column, slot, axis=1) for column in (rings.offset, rings.lag, rings.timestamp_ms)
    )
    found = Windows.of(offset, lag, timestamp_ms[:, 0], timestamp_ms[:, -1], rings.filled)
    for row in np.flatnonzero((lag == UNKNOWN).any(axis=1)):
        for name, value in facts_of(rings.samples(int(row))).items():
            getattr(found, name)[row] = value
    return found


def _joined(rings: RingArrays, commits: CommitArrays) -> tuple[CommitArrays, Ints, Bools]:
    """Join the old and new commits of each ring. Return all commits, their lags, and which commits are new."""
    row, slot = np.nonzero(np.arange(rings.intervals) >= rings.intervals - rings.filled[:, None])
    old = [column[row, slot] for column in rings[:5]]
    order, offset, timestamp_ms, old_lag, seen_ms = old
    stored = CommitArrays(row, seen_ms, order, offset, timestamp_ms, offset)
    numbered = commits._replace(segment=np.cumsum(begins(commits.segment)) - 1)
    columns = [np.concatenate(pair) for pair in zip(stored, numbered, strict=True)]
    by_ring = np.argsort(columns[0], kind="stable")
    lag = np.append(old_lag, commits.lag)[by_ring]
    return CommitArrays(*(column[by_ring] for column in columns)), lag, by_ring >= len(row)


def _newest_slots(commits: CommitArrays, lag: Ints, slots: Slots, intervals: int) -> RingArrays:
    last = np.append(np.flatnonzero(begins(commits.segment))[1:], len(commits.segment)) - 1
    last = last[: len(commits.segment)]
    newest, first = slots.of[last][:, None], slots.first_of_segment[last][:, None]
    slot = newest - np.arange(intervals - 1, -1, -1)
    is_filled = slot >= first
    slot = np.maximum(slot, first)
    commit = slots.last[slot]
    columns = (
        commits.order[commit],
        commits.offset[commit],
        slots.timestamp_ms[slot],
        lag[commit],
        commits.seen_ms[commit],
    )
    return RingArrays(*[*(np.where(is_filled, column, 0) for column in columns), is_filled.sum(axis=1)])


def _by_the_model(
    before: RingArrays, after: RingArrays, row: int, commits: CommitArrays, min_distance: int
) -> list[bool]:
    filled = int(before.filled[row])
    orders = before.order[row, before.intervals - filled :].tolist()
    window = Window.restored(orders, before.samples(row), intervals=before.intervals, min_distance=min_distance)
    newest = [
        window.add(offset, order=order, timestamp_ms=timestamp_ms, broker_offset=end, observed_at_ms=seen_ms)
        for seen_ms, order, offset, timestamp_ms, end in zip(*(each.tolist() for each in commits[1:]), strict=True)
    ]
    samples = [sample for sample in window.slots if sample]
    after.filled[row] = len(samples)
    values = (
        window.orders,
        [sample.offset for sample in samples],
        [sample.timestamp_ms for sample in samples],
        [UNKNOWN if sample.lag is None else sample.lag for sample in samples],
        [sample.observed_at_ms or 0 for sample in samples],
    )
    for column, kept in zip(after, values, strict=False):
        column[row] = 0
        column[row, before.intervals - len(samples) :] = kept
    return newest
