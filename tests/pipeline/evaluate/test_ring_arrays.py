"""RingArrays in arrays, batch by batch, equal the windows of the reference model."""

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from karrot.burrow.rules import Window
from karrot.event import OffsetSample
from karrot.pipeline.evaluate.ring_arrays import RingArrays, appended, windows_of
from karrot.pipeline.window_arrays.judge_windows import CommitArrays, facts_of
from support.examples import examples


class Commit(NamedTuple):
    ring: int
    seen_ms: int
    order: int
    offset: int
    timestamp_ms: int
    end: int


_BIG = 2**62
commits = st.builds(
    Commit,
    ring=st.integers(0, 1),
    seen_ms=st.integers(0, 100).map(lambda each: each * 1000),
    order=st.just(0),
    offset=st.integers(0, 6),
    timestamp_ms=st.integers(0, 12).map(lambda each: each * 500),
    end=st.integers(0, 8),
)
rarely_wrong = st.one_of(commits, commits, commits, commits.map(lambda each: each._replace(timestamp_ms=_BIG)))
in_order = st.lists(rarely_wrong, max_size=30).map(
    lambda several: [each._replace(order=number) for number, each in enumerate(several)]
)


def _late(several: Sequence[tuple[Commit, int, float]]) -> list[Commit]:
    """Commits of one ring that follow each other by their steps in time, some of them late."""
    now, made = 0, []
    for number, (each, step, late) in enumerate(several):
        now += 500 * step
        made.append((number + late, each._replace(ring=0, order=number, timestamp_ms=now)))
    return [each for _, each in sorted(made, key=itemgetter(0))]


some_late = st.lists(st.tuples(commits, st.integers(0, 5), st.sampled_from([0, 0, 1.5, 4.5])), max_size=30).map(_late)
cut = st.lists(st.integers(0, 30), max_size=6).map(sorted)


# Commits that came in the wrong order can be nearer to each other than ``min_distance``.
_NEAR = [Commit(0, 0, order, 1, 1000 * at_s, 2) for order, at_s in ((0, 0), (2, 3), (1, 2), (3, 9))]


@examples(400)
@example(_NEAR, [3], 5, 2)
@given(st.one_of(in_order, some_late), cut, st.integers(1, 5), st.sampled_from([0, 1, 2]))
def test_rings_have_the_commits_of_the_reference_model_after_every_batch(
    arrived: Sequence[Commit], cuts: Sequence[int], intervals: int, min_distance: int
) -> None:
    rings = RingArrays.empty(2, intervals)
    models = [Window(intervals, min_distance) for _ in range(2)]
    for begin, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
        batch = sorted(arrived[begin:end], key=lambda each: each.ring)
        rings, newest = appended(rings, _arrays(batch), min_distance)
        assert newest.tolist() == [
            models[each.ring].add(
                each.offset,
                order=each.order,
                timestamp_ms=each.timestamp_ms,
                broker_offset=each.end,
                observed_at_ms=each.seen_ms,
            )
            for each in batch
        ]
        kept = [[slot for slot in model.slots if slot] for model in models]
        assert [rings.samples(row) for row in range(2)] == kept
        assert [rings.order[row, intervals - len(kept[row]) :].tolist() for row in range(2)] == [
            [*model.orders] for model in models
        ]
        _assert_same_facts(rings, kept)


def _arrays(batch: Sequence[Commit]) -> CommitArrays:
    return CommitArrays(*np.array(batch, np.int64).reshape(-1, 6).T)


def _assert_same_facts(rings: RingArrays, kept: Sequence[list[OffsetSample]]) -> None:
    windows = windows_of(rings)
    for row, samples in enumerate(kept):
        if samples:
            assert {name: column[row].item() for name, column in windows._asdict().items()} == facts_of(samples)
