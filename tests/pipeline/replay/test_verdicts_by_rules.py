"""Compares the verdicts of replay, which works on arrays, with those of the reference model `karrot.burrow.rules`."""

import json
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.event import LogEnd, OffsetSample, Status
from karrot.pipeline.replay.partition_status_changes import VerdictTimes, evaluate, windows
from karrot.pipeline.window_arrays.judge_windows import (
    CommitArrays,
    LogEndArrays,
    Segments,
    Windows,
    facts_of,
    judged,
    stored,
)
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.burrow.burrow_storage import Storage
from support.burrow.partition_model import evaluate_partition

NEVER_MS = 2**60
EXPIRE = 1_000


class Commit(NamedTuple):
    seen_ms: int
    order: int
    offset: int
    timestamp_ms: int


class PartitionHistory(NamedTuple):
    """One consumer's commits of one partition as they arrived, and the partition's log ends."""

    commits: Sequence[Commit]
    ends: Sequence[LogEnd]


def verdicts_by_model(
    stream: PartitionHistory, rules: RuleSet, span: VerdictTimes, *, expire_group: int = EXPIRE
) -> dict[int, Status]:
    """Return the verdict at each moment at which Burrow would know the partition."""
    storage = Storage(intervals=rules.intervals, min_distance=rules.min_distance, expire_group=expire_group)
    waiting: list[Commit | LogEnd] = sorted([*stream.ends, *stream.commits], key=itemgetter(0))
    verdicts: dict[int, Status] = {}
    polls, seen_ms, last_order = list[LogEnd](), 0, -1
    for now in range(span.first, span.last + 1, span.every):
        while waiting and waiting[0][0] <= now * 1000:
            happened = waiting.pop(0)
            _tell(storage, happened)
            if isinstance(happened, LogEnd):
                polls.append(happened)
            elif (
                polls
                and happened.order != last_order
                and happened.timestamp_ms >= (happened.seen_ms // 1000 - expire_group) * 1000
            ):
                seen_ms, last_order = happened.seen_ms, happened.order
        # Keep the group from expiring here: the code that splits streams into segments handles expiry.
        for group in storage.groups():
            storage._groups[group].last_commit_ms = NEVER_MS
            for tracked in storage.fetch(group, now) or ():
                told = evaluate_partition(
                    tracked, now, allowed_lag=rules.allowed_lag, minimum_complete=rules.minimum_complete
                )
                newer = [end for end in polls[-2:] if end.at_ms > seen_ms]
                is_beyond = len(newer) == 2 and all(told.end and end.offset < told.end.offset for end in newer)
                verdicts[now] = Status.ERR if is_beyond else Status[told.status_text]
    return verdicts


def _tell(storage: Storage, happened: Commit | LogEnd) -> None:
    match happened:
        case LogEnd(_, offset):
            storage.put_log_end("t", 0, offset, partition_count=1)
        case Commit(seen_ms, order, offset, timestamp_ms):
            storage.put_commit("g", "t", 0, offset, order=order, timestamp_ms=timestamp_ms, now=seen_ms // 1000)


def verdicts_by_arrays(
    streams: Sequence[PartitionHistory], rule_sets: Sequence[RuleSet], span: VerdictTimes, *, expire_group: int = EXPIRE
) -> list[list[dict[int, Status]]]:
    """Return the verdicts of `evaluate` for all streams and rule sets: one list per set, with one dict per stream."""
    ends, segments = _ends(streams), Segments(np.arange(len(streams)), np.full(len(streams), NEVER_MS))
    kept = stored(_commits(streams), ends, segments, expire_group)
    verdicts = evaluate(kept, ends, segments, rule_sets, span)
    found: list[list[dict[int, Status]]] = [[{} for _ in streams] for _ in rule_sets]
    for of_set, codes in zip(found, verdicts.codes, strict=True):
        for segment, at, code in zip(verdicts.segment, verdicts.at, codes, strict=True):
            of_set[segment][int(at)] = Status(code)
    return found


def _commits(streams: Sequence[PartitionHistory]) -> CommitArrays:
    rows = [(number, *commit, 0) for number, stream in enumerate(streams) for commit in stream.commits]
    return CommitArrays(*_columns(rows, len(CommitArrays._fields)))


def _ends(streams: Sequence[PartitionHistory]) -> LogEndArrays:
    rows = [(number, *end, 0) for number, stream in enumerate(streams) for end in stream.ends]
    return LogEndArrays(*_columns(rows, len(LogEndArrays._fields)))


def _columns(rows: Iterable[Sequence[int]], width: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(list(rows), np.int64).reshape(-1, width).T.copy()


CASES = json.loads((Path(__file__).parents[2] / "data/burrow/evaluation_cases.json").read_text())
SPAN = VerdictTimes(1_000, 1_120, 10)


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


def as_dict(window: Windows) -> dict[str, int]:
    return {name: column[0].item() for name, column in window._asdict().items()}


# Burrow's own tables


@pytest.mark.parametrize("case", named(CASES["rule_cases"]))
def test_a_window_gets_burrows_verdict(case: dict[str, Any]) -> None:
    samples = [OffsetSample(row["offset"], row["timestamp"], lag=row["lag"]) for row in case["offsets"]]
    facts = {name: np.array([value]) for name, value in facts_of(samples).items()}
    rules = RuleSet("r", len(samples), case["allowedLag"], minimum_complete=case["minimumComplete"])
    end, least = (np.array([of]) for of in (samples[-1].offset + case["currentLag"], min(case["brokerOffsets"])))
    (code,) = judged(Windows(**facts), end, least, np.array([case["timeNow"]]), rules)
    assert Status(code).name == case["expected"]["status"]


@pytest.mark.parametrize("case", named(CASES["storage_cases"]))
def test_a_window_has_the_same_commits_as_burrows(case: dict[str, Any]) -> None:
    rows = [(0, at, row["order"], row["offset"], row["timestamp"]) for at, row in enumerate(case["commits"])]
    commits = CommitArrays(*np.array([(*row, case["brokerOffset"]) for row in rows]).T)
    at, min_distance = np.array([len(rows) - 1]), case["min_distance_seconds"]
    expected = [OffsetSample(row["offset"], row["timestamp"], lag=row["lag"]) for row in case["expected_window"]]
    found = windows(commits, at, intervals=case["intervals"], min_distance=min_distance)
    assert as_dict(found) == facts_of(expected)


@pytest.mark.parametrize(
    # The log ends that a replay reads do not show a deleted topic; they just stop.
    "case",
    named([case for case in CASES["group_cases"] if "then" not in case]),
)
def test_a_consumer_gets_burrows_verdict(case: dict[str, Any]) -> None:
    now = case["timeNow"]
    commits = [Commit(now * 1000, row["order"], row["offset"], row["timestamp"]) for row in case["commits"]]
    ends = [LogEnd(now * 1000 - 1, offset) for offset in case["brokerOffsets"]]
    rules = RuleSet("r", case["intervals"], case["allowedLag"], case["min_distance"], case["minimumComplete"])
    ((found,),) = verdicts_by_arrays([PartitionHistory(commits, ends)], [rules], VerdictTimes(now, now, 1))
    assert [min(status, Status.ERR).name for status in found.values()] == [
        case["expected"]["status"] for _ in case["commits"][:1]
    ]


# Random streams


times = st.integers(995_000, 1_115_000)
offsets = st.integers(0, 12)
timestamps = st.one_of(times, st.integers(0, 2_000_000), st.sampled_from([0, 2**60]))
ends = st.lists(st.builds(LogEnd, times, offsets), max_size=12, unique_by=lambda end: end.at_ms)
rule_sets = st.builds(
    RuleSet,
    name=st.just("r"),
    intervals=st.integers(1, 6),
    allowed_lag=st.sampled_from([0, 0, 1, 3]),
    min_distance=st.sampled_from([0, 0, 1, 5, 30]),
    minimum_complete=st.sampled_from([0, 0.5, 1 / 3, 1]),
)


@st.composite
def commits(draw: st.DrawFn) -> list[Commit]:
    """Draw commits in any order, with the timestamps at which they were seen or any others."""
    seen = sorted(draw(st.lists(times, min_size=1, max_size=25)))
    orders = range(len(seen)) if draw(st.booleans()) else draw(st.permutations([n // 2 for n in range(len(seen))]))
    stamps = draw(st.lists(timestamps, min_size=len(seen), max_size=len(seen))) if draw(st.booleans()) else seen
    return [Commit(at, order, draw(offsets), stamp) for at, order, stamp in zip(seen, orders, stamps, strict=True)]


streams = st.builds(PartitionHistory, commits(), ends.map(sorted))


@given(st.lists(streams, min_size=1, max_size=4), st.lists(rule_sets, min_size=1, max_size=3))
def test_arrays_give_the_verdicts_of_the_reference_model(
    given_streams: list[PartitionHistory], sets: list[RuleSet]
) -> None:
    assert verdicts_by_arrays(given_streams, sets, SPAN) == [
        [verdicts_by_model(stream, each, SPAN) for stream in given_streams] for each in sets
    ]


def test_a_long_stream_in_many_merged_slots_is_judged_as_by_the_model() -> None:
    seen = range(1_000_000, 1_119_000, 700)
    steady = PartitionHistory(
        [Commit(at, number, 40 * number, at) for number, at in enumerate(seen)],
        [LogEnd(at, (at - 1_000_000) // 12) for at in range(995_000, 1_120_000, 5_000)],
    )
    sets = [RuleSet("r", 5, min_distance=distance) for distance in (0, 1, 3, 10)]
    found = verdicts_by_arrays([steady, steady], sets, SPAN)
    assert found == [[verdicts_by_model(steady, each, SPAN)] * 2 for each in sets]
    assert {status for of_set in found for status in of_set[0].values()} >= {Status.OK, Status.WARN}
