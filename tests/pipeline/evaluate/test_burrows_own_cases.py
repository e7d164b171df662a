"""Burrow's own test tables, through the rings and verdicts of ``evaluate``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from karrot.burrow.notification_rules import NotifierSettings
from karrot.event import LagEvent, LogEnd, OffsetSample, Status, TopicPartition
from karrot.pipeline.evaluate.bucket_records import NewCommits, NewRecords, take
from karrot.pipeline.evaluate.bucket_state import BucketState, EvaluateRules
from karrot.pipeline.evaluate.bucket_verdicts import BucketTask
from karrot.pipeline.evaluate.recent_log_ends import RecentLogEnds
from karrot.pipeline.evaluate.ring_arrays import RingArrays, appended, windows_of
from karrot.pipeline.window_arrays.judge_windows import CommitArrays, judged
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.pipeline.log_end_looks import look_of

_CASES = json.loads((Path(__file__).parents[2] / "data/burrow/evaluation_cases.json").read_text())
_GROUP_KEY, _TOPIC_KEY = 11, 13


def _named(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in _CASES[name]]


def _arrays(rows: list[tuple[int, ...]]) -> CommitArrays:
    return CommitArrays(*np.array(rows, np.int64).reshape(-1, len(CommitArrays._fields)).T)


def _without_seen(sample: OffsetSample) -> OffsetSample:
    return OffsetSample(sample.offset, sample.timestamp_ms, lag=sample.lag)


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("case", _named("storage_cases"))
def test_a_ring_has_the_commits_of_burrows_storage(case: dict[str, Any], batch: int) -> None:
    rings, commits = RingArrays.empty(1, case["intervals"]), case["commits"]
    for first in range(0, len(commits), batch):
        rows: list[tuple[int, ...]] = [
            (0, first, each["order"], each["offset"], each["timestamp"], case["brokerOffset"])
            for each in commits[first : first + batch]
        ]
        rings, _ = appended(rings, _arrays(rows), case["min_distance_seconds"])
    expected = [OffsetSample(each["offset"], each["timestamp"], lag=each["lag"]) for each in case["expected_window"]]
    assert [*map(_without_seen, rings.samples(0))] == expected


@pytest.mark.parametrize("case", _named("rule_cases"))
def test_a_ring_gets_burrows_verdict(case: dict[str, Any]) -> None:
    offsets = case["offsets"]
    # The lag of a commit comes from the log end that was known then. A case without a lag came out of order.
    rows: list[tuple[int, ...]] = [
        (0, 0, number, each["offset"], each["timestamp"], each["offset"] + (each["lag"] or 0))
        for number, each in enumerate(offsets)
    ]
    rings, _ = appended(RingArrays.empty(1, len(offsets)), _arrays(rows), 0)
    for slot, each in enumerate(offsets):
        if each["lag"] is None:
            rings.lag[0, slot] = -1
    rules = RuleSet("r", len(offsets), case["allowedLag"], minimum_complete=case["minimumComplete"])
    told = offsets[-1]["offset"] + case["currentLag"], min(case["brokerOffsets"]), case["timeNow"]
    end, least, now = (np.array([each]) for each in told)
    (code,) = judged(windows_of(rings), end, least, now, rules)
    assert Status(code).name == case["expected"]["status"]


@pytest.mark.parametrize("case", _named("group_cases"))
def test_a_group_gets_burrows_verdict(case: dict[str, Any]) -> None:
    now_ms, topic = case["timeNow"] * 1000, case["topic"]
    rules = RuleSet("r", case["intervals"], case["allowedLag"], case["min_distance"], case["minimumComplete"])
    asked = EvaluateRules(rules, NotifierSettings(threshold=1), lists_all=case["show_all"])
    history = RecentLogEnds(case["intervals"], {topic: _TOPIC_KEY})
    ends = enumerate(case["brokerOffsets"], now_ms - 1)
    history.add(look_of([(TopicPartition(topic, 0), LogEnd(*end)) for end in ends], {topic}))
    count, commits = len(case["commits"]), case["commits"]
    columns = {name: np.array([each[name] for each in commits], np.int64) for name in ("partition", "order", "offset")}
    new = NewCommits(
        group_key=np.full(count, _GROUP_KEY),
        topic_key=np.full(count, _TOPIC_KEY),
        **columns,
        timestamp_ms=np.array([each["timestamp"] for each in commits], np.int64),
        at_ms=np.full(count, now_ms),
        group=np.full(count, case["group"], np.object_),
        topic=np.full(count, topic, np.object_),
    )
    state = take(BucketState.empty(case["intervals"]), NewRecords(new, {}, {}), history.as_arrays(), asked)
    if "then" in case:
        history.add(look_of([], ()))
        state = take(state, NewRecords(new.taken(np.zeros(0, np.int64)), {}, {}), history.as_arrays(), asked)
    _, told = BucketTask(asked, case["cluster"], now_ms, "batch").judge(state, history.as_arrays())

    expected = case["expected"]
    if expected["status"] == "NOTFOUND":
        assert told == []
        return
    [event] = told
    said = _said(event)
    assert {name: said[name] for name in expected} == expected


def _said(event: LagEvent) -> dict[str, Any]:
    first, largest = next(iter(event.partitions), None), event.max_lag
    return {
        "status": event.status_text,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "totallag": event.total_lag,
        "cluster": event.cluster,
        "group": event.consumer,
        "len_partitions": len(event.partitions),
        "partition0": first and {"complete": first.complete, "status": first.status_text},
        "maxlag": largest
        and largest.start
        and largest.end
        and {"start_offset": largest.start.offset, "end_offset": largest.end.offset},
    }
