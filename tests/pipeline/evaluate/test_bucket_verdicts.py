"""Verdicts in arrays, batch by batch, equal those of the reference model of Burrow."""

from random import Random

import pyarrow as pa
import pytest

from karrot.burrow.notifier import NameFilter, NotifierSettings
from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.evaluate.bucket_records import NewRecords, take
from karrot.pipeline.evaluate.bucket_state import BucketState, EvaluateRules
from karrot.pipeline.evaluate.bucket_verdicts import (
    COMMIT,
    DELETION,
    MEMBER,
    Notification,
    VerdictMoment,
    evaluated,
    new_records,
)
from karrot.pipeline.evaluate.recent_log_ends import RecentLogEnds
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.pipeline.evaluate_model import ONE_ID, Batch, Commit, EvaluateModel, batches, comparable
from support.pipeline.log_end_looks import look_of

_KEYS = {name: hash_ for hash_, name in enumerate(("g0", "g1", "g2", "t0", "t1", "t2"), 1_000_003)}


_COLUMNS = pa.schema(
    {
        "kind": pa.string(),
        **dict.fromkeys(("group_key", "topic_key", "partition", "order", "offset"), pa.int64()),
        **dict.fromkeys(("timestamp_ms", "at_ms"), pa.int64()),
        **dict.fromkeys(("group", "topic", "owner", "client_id"), pa.string()),
    }
)


def _new_records(batch: Batch) -> NewRecords:
    rows: list[dict[str, object]] = [
        {"kind": COMMIT, **each._asdict(), "topic_key": _KEYS[each.topic]} for each in batch.commits
    ]
    rows += [{"kind": DELETION, "group": group, "order": order} for group, order in batch.deleted.items()]
    for each in batch.rebalances:
        record = {"kind": MEMBER, "group": each.group, "order": each.order, "at_ms": each.at_ms}
        owned = [
            {**record, "topic": topic, "partition": number, "owner": owner, "client_id": client_id}
            for (topic, number), (owner, client_id) in each.owners.items()
        ]
        rows += owned or [record]
    keyed = [{**row, "group_key": _KEYS[str(row["group"])]} for row in rows]
    return new_records(pa.Table.from_pylist(keyed, _COLUMNS))


@pytest.mark.parametrize(
    "asked",
    [
        EvaluateRules(notifier=NotifierSettings(threshold=1, interval=30, send_close=True)),
        EvaluateRules(
            RuleSet("r", 4, 10, 20, 0.5), NotifierSettings(threshold=2, send_interval=130), 3_000, lists_all=False
        ),
    ],
    ids=["burrows defaults", "other rules"],
)
def test_the_notifications_equal_those_of_the_reference_model(asked: EvaluateRules) -> None:
    sent = [told for seed in range(6) for told in _compared(asked, seed)]
    statuses = {each.status_text for told in sent for each in told.event.partitions}
    assert statuses - {"OK"} == {"STOP", "STALL", "REWIND", "WARN"}
    assert ("OK" in statuses) == asked.lists_all
    assert {each.owner for told in sent for each in told.event.partitions} == {
        "",
        *(f"/10.0.0.{each}" for each in range(3)),
    }
    assert {told.is_close for told in sent} == {asked.notifier.send_close, False}


@pytest.mark.parametrize(("seed", "hours"), [(12, 3), pytest.param(9, 24, marks=pytest.mark.deep)])
def test_the_notifications_of_hours_equal_those_of_the_reference_model(seed: int, hours: int) -> None:
    asked = EvaluateRules(notifier=NotifierSettings(threshold=2, send_interval=30, send_close=True))
    sent = _compared(asked, seed, minutes=60 * hours)
    assert sum(each.is_close for each in sent) >= 5


def _compared(asked: EvaluateRules, seed: int, minutes: int = 60) -> list[Notification]:
    """Give the same batches to both, compare their notifications, and return them."""
    model, state, sent = EvaluateModel(asked), BucketState.empty(asked.rules.intervals), list[Notification]()
    history = RecentLogEnds(asked.rules.intervals)
    for batch in batches(Random(seed), minutes):
        at_ms, topics = (batch.now - 60) * 1000, {topic for topic, _ in batch.ends}
        history.topic_keys = {topic: _KEYS[topic] for topic in topics}
        samples = [(TopicPartition(*place), LogEnd(at_ms, end)) for place, end in batch.ends.items()]
        history.add(look_of(samples, topics))
        log_ends = history.as_arrays()
        history.forget_old()
        state = BucketState.from_bytes(state.to_bytes(), asked.rules.intervals)
        state = take(state, _new_records(batch), log_ends, asked)
        state, told = evaluated(state, log_ends, asked, VerdictMoment("c", batch.now * 1000, lambda _group: ONE_ID))
        expected = model.take(batch)
        assert sorted(map(comparable, told)) == sorted(map(comparable, expected))
        sent += told
    return sent


def test_a_group_with_a_clock_years_ahead_is_forgotten_like_others() -> None:
    asked, at_ms, year_ms = EvaluateRules(expire_group=3_000), 1_000_000_000, 366 * 86_400_000
    history = RecentLogEnds(asked.rules.intervals, {"t0": _KEYS["t0"]})
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(at_ms, 100))], {"t0"}))
    log_ends, commits = history.as_arrays(), [Commit("g0", "t0", 0, 1, 50, at_ms + 9 * year_ms, at_ms)]
    batch = Batch(at_ms // 1000, {("t0", 0): 100}, commits, {}, [])
    state = take(BucketState.empty(asked.rules.intervals), _new_records(batch), log_ends, asked)
    for after_s, known in ((3_000, ["g0"]), (3_001, [])):
        moment = VerdictMoment("c", at_ms + 1000 * after_s, lambda _group: ONE_ID)
        state, _ = evaluated(state, log_ends, asked, moment)
        assert [each.name for each in state.groups] == known


def test_groups_that_are_not_read_any_more_are_forgotten() -> None:
    asked, at_ms = EvaluateRules(notifier=NotifierSettings(threshold=1)), 1_000_000_000
    history = RecentLogEnds(asked.rules.intervals, {"t0": _KEYS["t0"]})
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(at_ms, 100))], {"t0"}))
    log_ends, commits = history.as_arrays(), [Commit(f"g{each}", "t0", 0, each, 50, at_ms, at_ms) for each in range(3)]
    batch = Batch(at_ms // 1000, {("t0", 0): 100}, commits, {}, [])
    state = take(BucketState.empty(asked.rules.intervals), _new_records(batch), log_ends, asked)
    fewer = asked._replace(read=(NameFilter(("^g",), ("2$",)), NameFilter(("^nobody$",))))
    for rules, known in ((asked, ["g0", "g1", "g2"]), (fewer, ["g0", "g1"]), (asked, ["g0", "g1"])):
        at_ms += 100_000  # more than the interval between two verdicts
        state, told = evaluated(state, log_ends, rules, VerdictMoment("c", at_ms, lambda _group: ONE_ID))
        assert [each.event.consumer for each in told] == [each.name for each in state.groups] == known


def test_records_that_come_again_change_nothing() -> None:
    asked, at_ms = EvaluateRules(), 1_000_000_000
    history = RecentLogEnds(asked.rules.intervals, {"t0": _KEYS["t0"]})
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(at_ms, 100))], {"t0"}))

    def after(state: BucketState, commits: list[Commit]) -> BucketState:
        records = _new_records(Batch(at_ms // 1000, {("t0", 0): 100}, commits, {}, []))
        return take(state, records, history.as_arrays(), asked)

    commits = [Commit("g0", "t0", 0, each, 50 + each, at_ms + 1000 * each, at_ms + 1000 * each) for each in range(3)]
    empty = BucketState.empty(asked.rules.intervals)
    once = after(empty, commits)
    assert after(empty, [each for each in commits for _ in range(2)]).to_bytes() == once.to_bytes()
    assert after(once, commits).to_bytes() == once.to_bytes()
    assert after(once, commits[-1:]).to_bytes() == once.to_bytes()


def test_a_verdict_uses_the_log_ends_of_its_own_second() -> None:
    asked, at_ms = EvaluateRules(notifier=NotifierSettings(threshold=1)), 1_000_000_000
    history = RecentLogEnds(asked.rules.intervals, {"t0": _KEYS["t0"]})
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(at_ms, 100))], {"t0"}))
    batch = Batch(at_ms // 1000, {("t0", 0): 100}, [Commit("g0", "t0", 0, 1, 50, at_ms, at_ms)], {}, [])
    state = take(BucketState.empty(asked.rules.intervals), _new_records(batch), history.as_arrays(), asked)
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(at_ms + 500, 900))], {"t0"}))
    moment = VerdictMoment("c", at_ms + 700, lambda _group: ONE_ID)
    _, [told] = evaluated(state, history.as_arrays(), asked, moment)
    assert told.event.total_lag == 850
