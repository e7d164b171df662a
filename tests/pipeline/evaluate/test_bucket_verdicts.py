"""Verdicts in arrays, batch by batch, equal those of the reference model of Burrow and of the rules of `watch`."""

from random import Random

import pytest

from karrot.burrow.notification_rules import NameFilter, NotifierSettings
from karrot.event import LagEvent, LogEnd, TopicPartition
from karrot.pipeline.evaluate.bucket_records import take
from karrot.pipeline.evaluate.bucket_state import BucketState, EvaluateRules
from karrot.pipeline.evaluate.bucket_verdicts import BucketTask
from karrot.pipeline.evaluate.recent_log_ends import RecentLogEnds
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.pipeline.evaluate_model import Batch, Commit, EvaluateModel, batches, comparable
from support.pipeline.log_end_looks import look_of
from support.pipeline.new_records import KEYS, records_of


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
    statuses = {each.status_text for told in sent for each in told.partitions}
    assert statuses - {"OK"} == {"STOP", "STALL", "REWIND", "WARN", "BEYOND_END", "NEVER_COMMITTED"}
    assert ("OK" in statuses) == asked.lists_all
    assert {each.owner for told in sent for each in told.partitions} == {
        "",
        *(f"/10.0.0.{each}" for each in range(3)),
    }
    assert bool(_closed(sent)) == asked.notifier.send_close


@pytest.mark.parametrize(("seed", "hours"), [(12, 3), pytest.param(9, 24, marks=pytest.mark.deep)])
def test_the_notifications_of_hours_equal_those_of_the_reference_model(seed: int, hours: int) -> None:
    asked = EvaluateRules(notifier=NotifierSettings(threshold=2, send_interval=30, send_close=True))
    sent = _compared(asked, seed, minutes=60 * hours)
    assert len(_closed(sent)) >= 5


def _closed(sent: list[LagEvent]) -> list[LagEvent]:
    return [told for told in sent if told.incident_id and told.status_text == "OK"]


def _compared(asked: EvaluateRules, seed: int, minutes: int = 60) -> list[LagEvent]:
    """Give the same batches to both, compare their notifications, and return them."""
    model, state, sent = EvaluateModel(asked), BucketState.empty(asked.rules.intervals), list[LagEvent]()
    history = RecentLogEnds(asked.rules.intervals)
    for batch in batches(Random(seed), minutes):
        at_ms, topics = (batch.now - 60) * 1000, {topic for topic, _ in batch.ends}
        history.topic_keys = {topic: KEYS[topic] for topic in topics}
        samples = [(TopicPartition(*place), LogEnd(at_ms, end)) for place, end in batch.ends.items()]
        history.add(look_of(samples, topics))
        log_ends = history.as_arrays()
        history.forget_old()
        state = BucketState.from_bytes(state.to_bytes())
        state = take(state, records_of(batch), log_ends, asked)
        state, told = BucketTask(asked, "c", batch.now * 1000, "batch").judge(state, log_ends)
        expected = model.take(batch)
        assert sorted(map(comparable, told)) == sorted(map(comparable, expected))
        sent += told
    return sent


_AT_MS = 1_000_000_000


def _history() -> RecentLogEnds:
    """The log end of one partition."""
    history = RecentLogEnds(EvaluateRules().rules.intervals, {"t0": KEYS["t0"]})
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(_AT_MS, 100))], {"t0"}))
    return history


def _after(commits: list[Commit], state: BucketState | None = None) -> BucketState:
    """The state after these commits on the partition."""
    asked, batch = EvaluateRules(), Batch(_AT_MS // 1000, {("t0", 0): 100}, commits, {}, [])
    before = BucketState.empty(asked.rules.intervals) if state is None else state
    return take(before, records_of(batch), _history().as_arrays(), asked)


def test_a_group_with_a_clock_years_ahead_is_forgotten_like_others() -> None:
    asked, year_ms = EvaluateRules(expire_group=3_000), 366 * 86_400_000
    state = _after([Commit("g0", "t0", 0, 1, 50, _AT_MS + 9 * year_ms, _AT_MS)])
    for after_s, known in ((3_000, ["g0"]), (3_001, [])):
        state, _ = BucketTask(asked, "c", _AT_MS + 1000 * after_s, "batch").judge(state, _history().as_arrays())
        assert [each.name for each in state.groups] == known


def test_groups_that_are_not_read_any_more_are_forgotten() -> None:
    asked, at_ms = EvaluateRules(notifier=NotifierSettings(threshold=1)), _AT_MS
    state = _after([Commit(f"g{each}", "t0", 0, each, 50, at_ms, at_ms) for each in range(3)])
    fewer = asked._replace(groups=NameFilter(("^g",), ("2$",)))
    for rules, known in ((asked, ["g0", "g1", "g2"]), (fewer, ["g0", "g1"]), (asked, ["g0", "g1"])):
        at_ms += 100_000  # more than the interval between two verdicts
        state, told = BucketTask(rules, "c", at_ms, "batch").judge(state, _history().as_arrays())
        assert [each.consumer for each in told] == [each.name for each in state.groups] == known


def test_records_that_come_again_change_nothing() -> None:
    times = [_AT_MS + 1000 * each for each in range(3)]
    commits = [Commit("g0", "t0", 0, each, 50 + each, at_ms, at_ms) for each, at_ms in enumerate(times)]
    once = _after(commits)
    assert _after([each for each in commits for _ in range(2)]).to_bytes() == once.to_bytes()
    assert _after(commits, once).to_bytes() == once.to_bytes()
    assert _after(commits[-1:], once).to_bytes() == once.to_bytes()


def test_a_verdict_uses_the_log_ends_of_its_own_second() -> None:
    asked, history = EvaluateRules(notifier=NotifierSettings(threshold=1)), _history()
    history.add(look_of([(TopicPartition("t0", 0), LogEnd(_AT_MS + 500, 900))], {"t0"}))
    state = _after([Commit("g0", "t0", 0, 1, 50, _AT_MS, _AT_MS)])
    _, [told] = BucketTask(asked, "c", _AT_MS + 700, "batch").judge(state, history.as_arrays())
    assert told.total_lag == 850
