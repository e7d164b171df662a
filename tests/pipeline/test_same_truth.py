"""`watch`, the tables and the judge say the same about the same groups (`support.pipeline.truth_cases`)."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from karrot.burrow.notification_rules import NotifierSettings
from karrot.event import LagEvent, TopicPartition
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.evaluate.bucket_records import take
from karrot.pipeline.evaluate.bucket_state import BucketState, EvaluateRules
from karrot.pipeline.evaluate.bucket_verdicts import BucketTask
from karrot.pipeline.evaluate.recent_log_ends import RecentLogEnds
from karrot.pipeline.offsets.log_ends import LogEndLook
from karrot.pipeline.store.table_files import Tables
from karrot.watch.cluster_interface import Failure
from support.kafka.in_memory_kafka import make_member
from support.kafka.watch_rig import WatchRig
from support.pipeline.evaluate_model import Batch, Commit, Rebalance
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.commits import assignments_of, commits_of, log_ends_of
from support.pipeline.expected_tables.comparison import assert_equal_tables, table_rows
from support.pipeline.new_records import KEYS, records_of
from support.pipeline.offset_rows import commit_row, log_end_row, member_rows
from support.pipeline.table_files import write_rows
from support.pipeline.truth_cases import CASES, POLL_S, Case, at, moves

named = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
_STATES = {"BEYOND_END", "LEFT", "NEVER_COMMITTED"}


def _assert_same(case: Case, event: LagEvent) -> None:
    found = {TopicPartition(one.topic, one.partition): one for one in event.partitions}
    assert found.keys() == case.lags.keys()
    for place, (states, lag) in case.lags.items():
        assert found[place].status_text in states
        assert found[place].current_lag == lag
    assert (event.status_text, event.total_lag) == (case.status, case.total_lag)
    assert event.partition_count == sum(states != {"LEFT"} for states, _ in case.lags.values())


@named
def test_watch(case: Case, tmp_path: Path) -> None:
    rig = WatchRig(tmp_path, abandoned_after=0)
    rig.kafka.ends.clear()
    for poll in range(case.judged + 1):
        for place, steps in case.ends.items():
            end = at(steps, poll)
            if end == -1:
                rig.kafka.failures[place] = Failure("leader_not_available", "no leader")
            else:
                rig.kafka.ends[place] = end or 0
            rig.kafka.starts[place] = at(case.starts.get(place, ()), poll) or 0
        offsets = {place: at(steps, poll) for place, steps in case.commits.items()}
        owned = next(owned for since, owned in reversed(case.members) if since <= poll)
        committed = {place: offset for place, offset in offsets.items() if offset is not None}
        rig.kafka.put("g", committed, *([make_member(*owned)] if owned else []))
        rig.poll(writes=0, reads={})
    event = rig.outcomes[-1].events[-1]
    _assert_same(case, event)


@named
def test_judge(case: Case) -> None:
    """A batch for each poll, in which the log ends are polled before the records are read."""
    asked = EvaluateRules(notifier=NotifierSettings(threshold=1, interval=POLL_S))
    state, history, told = BucketState.empty(asked.rules.intervals), RecentLogEnds(asked.rules.intervals), []
    for poll in range(case.judged + 1):
        now_ms, order = 1_000_000_000 + poll * POLL_S * 1000, 100 * poll
        ends = {place: at(steps, poll) for place, steps in case.ends.items()}
        known = {place: end for place, end in ends.items() if end != -1}
        start = [at(case.starts.get(place, ()), poll) or 0 for place in known]
        columns = (np.full(len(known), now_ms), np.array([*known.values()]), np.array(start))
        history.topic_keys = {place.topic: KEYS[place.topic] for place in ends}
        history.add(LogEndLook([*known], *columns, {place.topic for place in ends}))
        commits = [
            Commit("g", *place, order + number, offset, now_ms + 1000, now_ms + 1000)
            for number, (place, steps) in enumerate(case.commits.items())
            for since, offset in moves(steps, poll)
            if since == poll
        ]
        rebalances = [
            Rebalance("g", order + 50, now_ms + 2000, dict.fromkeys(owned, ("/host", "client")))
            for since, owned in case.members
            if since == poll
        ]
        log_ends = history.as_arrays()
        history.forget_old()
        state = BucketState.from_bytes(state.to_bytes())
        state = take(state, records_of(Batch(now_ms // 1000, {}, commits, {}, rebalances)), log_ends, asked)
        state, sent = BucketTask(asked, "c", now_ms + 3000, "batch").judge(state, log_ends)
        told += sent
    _assert_same(case, told[-1])


@pytest.mark.timeout(300)
def test_tables(spark: SparkSession, tmp_path: Path) -> None:
    """A cluster for each case. Also every row equals the row that plain Python makes."""
    rows: dict[str, list[dict[str, Any]]] = {"commits": [], "members": [], "ends": []}
    for case in CASES:
        rows["ends"] += [
            log_end_row(poll * POLL_S, end, *place, start=at(case.starts.get(place, ()), poll) or 0)
            | {"cluster": case.name}
            for poll in range(case.judged + 1)
            for place, steps in case.ends.items()
            if (end := at(steps, poll) or 0) != -1
        ]
        for place, steps in case.commits.items():
            times = ((poll * POLL_S + 1, offset) for poll, offset in moves(steps, case.judged))
            rows["commits"] += [
                commit_row(second, "g", offset, *place) | {"cluster": case.name} for second, offset in times
            ]
        for generation, (poll, owned) in enumerate(case.members):
            assigned = {"host": [*owned]} if owned else {}
            record = member_rows(poll * POLL_S + 2, "g", generation, assigned)
            rows["members"] += [row | {"cluster": case.name} for row in record]
    for name, of_table in rows.items():
        write_rows(tmp_path, name, of_table, batch="b-0")
    derive(spark, Tables(str(tmp_path)), DeriveRules(longest=timedelta(minutes=5)))

    records = Records(commits_of(rows["commits"]), log_ends_of(rows["ends"]), assignments_of(rows["members"]))
    assert_equal_tables(tmp_path, derived_tables([], records, Rules(longest_ms=300_000)))
    lags, minutes = table_rows(tmp_path, "partition_lag_minute"), table_rows(tmp_path, "lag_minute")
    for case in CASES:
        newest = {
            TopicPartition(row["topic"], row["partition"]): row
            for row in sorted(lags, key=lambda row: row["minute"])
            if row["cluster"] == case.name
        }
        assert newest.keys() == case.lags.keys(), case.name
        for place, (states, lag) in case.lags.items():
            assert newest[place]["state"] == next(iter(states & _STATES), None), case.name
            if case.judged < 60:
                assert newest[place]["lag"] == lag, case.name
        *_, last = sorted((row for row in minutes if row["cluster"] == case.name), key=lambda row: row["minute"])
        assert (last["lag_last"], last["complete"]) == (case.total_lag, case.complete), case.name
