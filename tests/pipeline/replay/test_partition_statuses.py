from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from karrot.pipeline.replay import partition_status_changes
from karrot.pipeline.replay.partition_status_changes import STOOD_STILL, ReplayOptions, VerdictTimes, stalls
from karrot.pipeline.window_arrays.judge_windows import CommitArrays, Ints, LogEndArrays, Segments, stored
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

MINUTE_MS = 60_000
SPAN = VerdictTimes(600, 3_600, 60)
DEATHS = {1: [1_800_000]}


def rows_of(topic: int, rng: Random) -> list[dict[str, Any]]:
    """Return an unsorted hour of one partition: its log ends, and three groups, the last one falling behind."""
    ends = [(None, 0, at, at // 1_000, at) for at in range(0, 3_600_000, 30_000)]
    groups = [
        (group, at, at, at // 1_000 - rng.randrange(20) if group < 2 or at < 1_500_000 else 1_400, at)
        for group in range(3)
        for at in range(10_000, 3_600_000, rng.randrange(20_000, 40_000))
    ]
    names = ("group_key", "place", "at_ms", "offset", "timestamp_ms")
    rows = [dict(zip(names, row, strict=True)) | {"source_key": topic} for row in [*ends, *groups]]
    rng.shuffle(rows)
    return rows


def replayed(table: pa.Table, size: int) -> Counter[tuple[object, ...]]:
    asked = ReplayOptions([RuleSet("burrow"), RuleSet("calm", 4, min_distance=60)], SPAN, 10**6, 2 * MINUTE_MS, DEATHS)
    found: Counter[tuple[object, ...]] = Counter()
    for batch in partition_status_changes._replay(asked, iter(table.to_batches(max_chunksize=size))):
        for *step, known, warn, err in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.update({(*step, "known"): known, (*step, "warn"): warn, (*step, "err"): err})
    return Counter({step: number for step, number in found.items() if number})


def test_changes_of_status_do_not_depend_on_the_split_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(3)
    table = pa.Table.from_pylist([row for topic in range(-3, 4) for row in rows_of(topic, rng)])
    whole = replayed(table, 10**6)
    monkeypatch.setattr(partition_status_changes, "_ROWS_AT_ONCE", 100)
    monkeypatch.setattr(partition_status_changes, "_VERDICTS_AT_ONCE", 60)
    assert replayed(table, 10**6) == replayed(table, 37) == replayed(table, 400) == whole
    assert {group for (rules, group, _, _) in whole if rules == STOOD_STILL} == {2}


def test_a_deleted_group_has_no_partition_until_it_commits_again() -> None:
    found = replayed(pa.Table.from_pylist(rows_of(1, Random(3))), 10**6)
    known = sorted(
        (at_ms, number)
        for (rules, group, at_ms, what), number in found.items()
        if (rules, group, what) == (0, 1, "known")
    )
    assert known == [(600_000, 1), (1_800_000, -1), (1_860_000, 1)]
    assert sum(number for _, number in known) == 1


def test_a_partition_without_further_log_ends_gets_no_further_status() -> None:
    rows = [row for row in rows_of(1, Random(3)) if row["group_key"] is not None or row["at_ms"] < 1_200_000]
    found = replayed(pa.Table.from_pylist(rows), 10**6)
    gone = {
        (group, at_ms)
        for (rules, group, at_ms, what), number in found.items()
        if rules == 0 and what == "known" and number < 0
    }
    assert gone == {(0, 1_800_000), (1, 1_800_000), (2, 1_800_000)}


NEVER_MS = 2**60


def found(
    commits: list[tuple[int, int]], ends: list[tuple[int, int]], *, gone_at: int = NEVER_MS
) -> list[tuple[int, int]]:
    """Find when a partition stood still for at least 100 s, from its (seconds, offset) pairs within 1,000 s."""
    at, offset = (
        np.array(column) * factor for column, factor in zip(zip(*commits, strict=True), (1_000, 1), strict=True)
    )
    seen_at, end = (np.array(column) for column in zip(*ends, strict=True))
    zeros: Ints = np.zeros_like(at)
    log, segments = (
        LogEndArrays(np.zeros_like(end), seen_at * 1_000, end, np.zeros_like(end)),
        Segments(np.array([0]), np.array([gone_at * 1_000])),
    )
    kept = stored(CommitArrays(zeros, at, np.arange(len(at)), offset, at, zeros), log, segments, 10**9)
    stood = stalls(kept, log, segments, at_least_ms=100_000, until_ms=1_000_000)
    return [
        (begin // 1_000, end // 1_000) for begin, end in zip(stood.from_ms.tolist(), stood.to_ms.tolist(), strict=True)
    ]


def test_a_group_that_repeats_its_commit_below_the_log_end_stands_still_until_it_moves() -> None:
    assert found([(10, 5), (20, 8), (60, 8), (150, 8), (200, 9), (250, 9)], [(0, 20)]) == [(20, 200), (200, 1_000)]


def test_a_group_at_the_log_end_stands_still_once_the_log_grows() -> None:
    assert found([(10, 5), (300, 5), (400, 7)], [(0, 5), (120, 5), (240, 6)]) == [(240, 400)]
    assert found([(10, 5), (900, 5)], [(0, 5), (930, 6)]) == []


def test_a_short_pause_does_not_count_and_a_deleted_group_ends_a_pause() -> None:
    assert found([(10, 5), (109, 6), (300, 9)], [(0, 9)], gone_at=900) == [(109, 300)]
    assert found([(10, 5)], [(0, 9)], gone_at=500) == [(10, 500)]
