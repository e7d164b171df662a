from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from karrot.burrow.payload import parse_webhook
from karrot.event import Source
from karrot.eventlog import rows
from karrot.eventlog.base import Cursor, EventSummary, GroupState
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import RefusedDatum, Sent, Unreported
from karrot.reporters.cloudwatch import build
from karrot.reporters.cloudwatch.group_data import GroupData, data_of
from karrot.settings.options import CloudWatch as Options
from karrot.text import instant
from support.burrow.lag_events import make_partition
from support.burrow.recorded_bodies import recorded_posts
from support.eventlog.read_commits import cut_off_from_kafka
from support.manual_clock import ManualClock
from support.reporters.cloudwatch_reporter_rig import CloudWatchRig, point_aws_at
from support.reporters.cloudwatch_service.request_handler import Refuse
from support.reporters.injected_faults import ACCESS_DENIED, INTERNAL_ERROR, THROTTLING, UNAVAILABLE
from support.reporters.reporter_context import make_context
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch


@pytest.fixture
def fake(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedCloudWatch]:
    with ScriptedCloudWatch(clock_ms=clock.wall_ms) as serving:
        point_aws_at(serving, monkeypatch)
        yield serving


@pytest.fixture
def rig(fake: ScriptedCloudWatch, clock: ManualClock) -> CloudWatchRig:
    return CloudWatchRig(fake, clock)


def test_the_newest_lag_of_a_group_is_sent_with_its_observation_time(rig: CloudWatchRig) -> None:
    rig.tell(total_lag=5)
    rig.clock.advance(500)
    observed = rig.clock.wall
    rig.tell(total_lag=7)
    rig.run(10)
    assert rig.points() == [(observed, 7.0)]
    assert [call.data for call in rig.fake.calls] == [2]


def test_a_cluster_has_a_heartbeat_only_in_the_flush_after_an_event(rig: CloudWatchRig) -> None:
    rig.tell(consumer="a")
    rig.clock.advance(100)
    heard = rig.clock.wall
    rig.tell(consumer="b")
    rig.run(60)
    beats = rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})
    assert [(point.timestamp_ms, point.value) for point in beats] == [(heard, 1.0)]


def test_a_burrow_that_is_cut_off_from_kafka_gives_neither_lag_nor_heartbeat(rig: CloudWatchRig) -> None:
    cut_off_from_kafka(rig.log, rig.clock)
    rig.tell(total_lag=0)
    rig.tell(total_lag=0, source=Source.REST)
    rig.tell(cluster="prod-us")
    rig.run(60)
    assert rig.points() == rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"}) == []
    assert rig.dropped() == {"unknown": 1}  # of each group once in a send
    assert (
        len(rig.points(cluster="prod-us")) == len(rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-us"})) == 1
    )


def test_verdicts_from_kafka_itself_are_sent_while_burrow_is_cut_off(rig: CloudWatchRig) -> None:
    cut_off_from_kafka(rig.log, rig.clock)
    rig.tell(total_lag=3, source=Source.KAFKA)
    rig.run(60)
    assert [value for _, value in rig.points()] == [3]
    assert len(rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})) == 1


def test_burrows_values_are_sent_while_its_verdict_counts_and_those_of_watch_after_it(rig: CloudWatchRig) -> None:
    for passed in range(0, 480, 10):
        if passed % 30 == 0 and passed < 180:
            rig.tell(total_lag=5000)
        rig.clock.advance(100)
        rig.tell(total_lag=3, source=Source.KAFKA)
        if passed == 90:
            rig.restart()
        rig.run(10)
    values = [value for _, value in rig.points()]
    changed = values.index(3)
    assert set(values[:changed]) == {5000}
    assert set(values[changed:]) == {3}
    assert 5 <= changed < len(values) - 4
    assert len(rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})) >= 16


def test_watch_counts_beside_a_burrow_that_is_cut_off_and_its_numbers_are_sent(rig: CloudWatchRig) -> None:
    for _ in range(3):
        rig.tell(total_lag=5000)
        rig.tell(total_lag=3, source=Source.KAFKA)
        rig.run(30)
    cut_off_from_kafka(rig.log, rig.clock)
    rig.fake.forget()
    rig.tell(total_lag=5000)
    rig.tell(total_lag=4, source=Source.KAFKA)
    rig.run(60)
    assert [value for _, value in rig.points()] == [4]
    assert len(rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})) == 1


def test_a_second_opinion_alone_does_not_send_burrows_value_again(rig: CloudWatchRig) -> None:
    rig.tell(total_lag=5000)
    rig.run(30)
    rig.tell(total_lag=3, source=Source.KAFKA)
    rig.run(60)
    assert [value for _, value in rig.points()] == [5000]
    assert len(rig.fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})) == 2


def test_each_interval_has_the_newest_value_of_each_group_of_a_recorded_burrow(rig: CloudWatchRig) -> None:
    newest: dict[str, float] = {}
    began, calls, data = recorded_posts()[0][0], 0, 0
    for at, body in [*recorded_posts(), (recorded_posts()[-1][0] + 60, b"")]:
        while rig.clock.wall < 1_800_000_000_000 + 1000 * (at - began):
            rig.run(0.5)
            if len(rig.fake.calls) > calls:
                sent = {dict(each.id.dimensions).get("ConsumerGroup"): each.values for each in rig.fake.accepted[data:]}
                assert sent == {None: (1.0,)} | {group: (lag,) for group, lag in newest.items()}
                calls, data, newest = len(rig.fake.calls), len(rig.fake.accepted), {}
        if body:
            event = parse_webhook(body, observed_at_ms=rig.clock.wall)
            rig.log.append(event, body)
            if not event.consumer.startswith("burrow-"):
                newest[event.consumer] = float(event.total_lag or 0)
    assert calls > 3
    assert newest == {}


@pytest.mark.parametrize("stuck", [False, True], ids=["no stuck partition", "a stuck partition"])
def test_the_scalable_age_of_a_row_of_an_older_karrot_is_sent_if_it_is_known(
    fake: ScriptedCloudWatch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, stuck: bool
) -> None:
    rig = CloudWatchRig(fake, clock, {"metrics": "LagSeconds,ScalableLagSeconds"})
    partitions = (make_partition(status_text="STALL", current_lag=1_000),) if stuck else ()
    with monkeypatch.context() as older:
        older.setattr(rows, "_encode", as_an_older_karrot)
        rig.tell(partitions=partitions)
    rig.run(5)
    assert len(rig.points("LagSeconds")) == 1
    assert rig.points("ScalableLagSeconds") == ([] if stuck else rig.points("LagSeconds"))
    rig.tell(partitions=partitions)
    rig.run(30)
    assert len(rig.points("ScalableLagSeconds")) == (1 if stuck else 2)


def as_an_older_karrot(value: object) -> bytes:
    """Encode a group's state as before the field ``scalable_lag_seconds``, and other values as now."""
    if not (isinstance(value, tuple) and isinstance(value[-1], EventSummary)):
        return msgspec.msgpack.encode(value)
    row: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(value[-1]))
    older = row[: EventSummary.__struct_fields__.index("scalable_lag_seconds")]
    return msgspec.msgpack.encode((*value[:-1], older))


def test_a_send_that_failed_half_way_repeats_only_the_rest(rig: CloudWatchRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karrot.reporters.cloudwatch.data.MAX_DATA", 2)
    for consumer in "abc":
        rig.tell(consumer=consumer)
    rig.fake.script(None, UNAVAILABLE, UNAVAILABLE)
    rig.run(20)
    assert [len(rig.points(consumer=consumer)) for consumer in "abc"] == [1, 1, 1]
    assert [call.data for call in rig.fake.calls] == [2, 2, 2, 2]


def test_zero_is_sent_once_for_an_event_with_zero_and_not_repeated(rig: CloudWatchRig) -> None:
    observed = rig.clock.wall
    rig.tell(total_lag=0, status_text="OK", incident_id=None)
    rig.run(120)
    assert rig.points() == [(observed, 0.0)]


def test_unknown_lag_is_not_sent_and_is_counted(rig: CloudWatchRig) -> None:
    rig.tell(total_lag=None)
    rig.run(60)
    assert rig.points() == []
    assert rig.dropped() == {"unknown": 1}


def test_an_older_observation_does_not_replace_a_newer_one(rig: CloudWatchRig) -> None:
    rig.clock.advance(10_000)
    newest = rig.clock.wall
    rig.tell(total_lag=7)
    rig.tell(total_lag=99, age_ms=5_000)
    rig.run(30)
    assert rig.points() == [(newest, 7.0)]


def test_the_later_of_two_values_of_the_same_moment_is_sent(rig: CloudWatchRig) -> None:
    observed = rig.clock.wall
    rig.tell(total_lag=5)
    rig.tell(total_lag=7)
    rig.run(10)
    assert rig.points() == [(observed, 7.0)]


def test_flushes_keep_their_rate_however_long_they_take(rig: CloudWatchRig) -> None:
    began = rig.clock.wall
    for second in range(600):
        rig.tell(total_lag=second)
        rig.run(1)
    calls = [call.at_ms for call in rig.fake.calls]
    assert {later - earlier for earlier, later in pairwise(calls)} == {30_000}
    assert {(at - began) // 60_000 for at, _ in rig.points()} == set(range(10))


def test_the_cursor_moves_once_everything_new_is_sent(rig: CloudWatchRig) -> None:
    rig.tell()
    rig.run(5)
    assert rig.log.cursor("cloudwatch") == Cursor(rig.log.log_id, 1)
    rig.fake.stand(UNAVAILABLE)
    rig.tell(consumer="a", total_lag=1)
    rig.tell(consumer="b", total_lag=1)
    rig.run(30)
    rig.tell(consumer="a", total_lag=2)
    rig.run(30)
    assert rig.log.cursor("cloudwatch") == Cursor(rig.log.log_id, 1)
    rig.fake.clear()
    rig.run(30)
    assert rig.log.cursor("cloudwatch") == Cursor(rig.log.log_id, 4)
    assert [value for _, value in rig.points(consumer="a")] == [2.0]


def test_a_new_process_sends_the_data_that_the_one_before_owed(rig: CloudWatchRig) -> None:
    rig.fake.stand(INTERNAL_ERROR)
    rig.tell(consumer="a")
    rig.run(10)
    rig.fake.clear()
    rig.restart()
    rig.run(5)
    assert len(rig.points(consumer="a")) == 1


def test_a_crash_between_the_call_and_the_cursor_sends_a_datum_twice_and_loses_none(rig: CloudWatchRig) -> None:
    rig.tell()
    reporter = build(make_context("cloudwatch", log=rig.log, clock=rig.clock))
    reporter.report(Unreported(rig.log, Cursor(rig.log.log_id, 0)))
    reporter.close()
    rig.restart()
    rig.run(5)
    assert len(rig.points()) == 2
    assert len(set(rig.points())) == 1


def test_after_an_outage_the_newest_value_of_every_group_arrives_within_an_interval_and_no_old_one(
    rig: CloudWatchRig,
) -> None:
    rig.fake.stand(UNAVAILABLE)
    for second in range(300):
        for number in range(10):
            rig.tell(consumer=f"g{(second * 10 + number) % 100}", total_lag=second)
        if second == 0:
            rig.tell(consumer="quiet")
        rig.run(1)
    rig.fake.clear()
    back = rig.clock.wall
    rig.run(30)
    assert {group for group in range(100) if len(rig.points(consumer=f"g{group}")) == 1} == set(range(100))
    assert rig.points(consumer="quiet") == []
    assert all(back - datum.timestamp_ms <= 180_000 for datum in rig.fake.accepted)
    assert rig.dropped() == {"expired": 1.0}


def test_after_a_long_outage_one_call_has_the_newest_datum_of_each_metric(rig: CloudWatchRig) -> None:
    rig.fake.stand(UNAVAILABLE)
    for second in range(300):
        rig.tell(total_lag=second)
        rig.run(1)
    rig.fake.clear()
    rig.fake.forget()
    rig.run(30)
    assert [call.data for call in rig.fake.calls] == [2]


def test_a_fault_and_its_recovery_are_logged_and_counted(rig: CloudWatchRig) -> None:
    rig.tell()
    rig.fake.stand(ACCESS_DENIED)
    rig.run(5)
    (state,) = rig.log.reporters()
    assert state.state == "failing"
    assert state.last_error is not None
    assert "AccessDenied" in state.last_error
    assert rig.counted("karrot_reporter_failures_total", "reason") == {"permission": 1}
    assert rig.counted("karrot_reporter_cloudwatch_requests_total", "status") == {"403": 1}
    rig.fake.clear()
    rig.run(60)
    assert rig.log.reporters()[0].state == "ok"
    assert len(rig.points()) == 1


def test_throttling_causes_a_longer_wait_and_loses_no_datum(rig: CloudWatchRig) -> None:
    rig.tell(total_lag=3)
    rig.fake.script(*[THROTTLING] * 6)
    rig.run(30)
    assert [value for _, value in rig.points()] == [3.0]
    assert rig.counted("karrot_reporter_failures_total", "reason") == {"throttled": 3}


def test_no_state_is_reported_before_the_first_call(rig: CloudWatchRig) -> None:
    rig.run(60)
    assert rig.fake.calls == []
    (state,) = rig.log.reporters()
    assert (state.state, state.last_success_ms) == ("idle", None)


def test_a_fault_is_still_reported_when_its_value_is_too_old_to_send(rig: CloudWatchRig) -> None:
    rig.tell()
    rig.fake.stand(ACCESS_DENIED)
    rig.run(300)
    rig.fake.clear()
    rig.run(60)
    assert rig.log.reporters()[0].state == "failing"  # no call shows that calls work again
    rig.tell(consumer="new")
    rig.run(60)
    assert rig.log.reporters()[0].state == "ok"
    assert rig.points() == []
    assert rig.dropped() == {"expired": 1}


def test_a_400_about_the_caller_loses_no_value(rig: CloudWatchRig) -> None:
    rig.fake.stand(Refuse(400, "NotAuthorized", "NotAuthorized", "You do not have permission to perform this action."))
    for number in range(30):
        rig.tell(consumer=f"g{number}")
    rig.run(60)
    assert rig.dropped() == {}
    assert rig.log.reporters()[0].state == "failing"
    rig.fake.clear()
    rig.run(60)
    assert all(len(rig.points(consumer=f"g{number}")) == 1 for number in range(30))


def test_a_group_called_heartbeat_is_treated_like_any_other(fake: ScriptedCloudWatch, clock: ManualClock) -> None:
    rig = CloudWatchRig(fake, clock, {"layout": "legacy"})
    rig.tell(consumer="Heartbeat", total_lag=9)
    rig.run(5)
    assert [point.value for point in fake.points("Karrot", "Heartbeat")] == [9.0]
    assert rig.log.reporters()[0].state == "ok"


def test_a_replaced_log_keeps_the_groups_inside_the_cap(fake: ScriptedCloudWatch, clock: ManualClock) -> None:
    rig = CloudWatchRig(fake, clock, {"max_groups": "1"})
    rig.tell(consumer="a")
    rig.run(5)
    clock.wall -= 600_000  # the time of the new log begins before that of the old one
    rig.log = rig.feed.log = MemoryEventLog(clock)
    context = make_context("cloudwatch", log=rig.log, clock=clock)
    rig.feed.reporter._context = context  # type: ignore[union-attr]
    rig.tell(consumer="a")
    rig.run(30)
    assert len(fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})) == 2
    rig.restart()
    rig.tell(consumer="newcomer")
    rig.run(30)
    assert rig.points(consumer="newcomer") == []


def test_forged_clusters_do_not_raise_the_bill(rig: CloudWatchRig) -> None:
    for number in range(150):
        rig.tell(cluster=f"c{number}", consumer="g")
    rig.run(5)
    assert sum(metric.metric == "Heartbeat" for metric in rig.fake.metrics()) == 100
    assert rig.dropped() == {"over_cap": 50}


def test_a_sixty_first_cluster_has_a_heartbeat_in_a_send_with_all_others(rig: CloudWatchRig) -> None:
    for clusters in (60, 61):
        for number in range(clusters):
            rig.tell(cluster=f"c{number}")
        rig.run(30)
    assert len(rig.fake.points("Karrot", "Heartbeat", {"Cluster": "c60"})) == 1
    assert rig.dropped() == {}


def test_the_groups_inside_the_cap_stay_inside_across_a_restart(fake: ScriptedCloudWatch, clock: ManualClock) -> None:
    rig = CloudWatchRig(fake, clock, {"max_groups": "2"})
    for consumer in ("a", "b", "c"):
        rig.tell(consumer=consumer)
    rig.run(5)
    rig.restart()
    for consumer in ("c", "d", "b", "a"):
        rig.tell(consumer=consumer)
    rig.run(30)
    assert {dict(metric.dimensions).get("ConsumerGroup") for metric in fake.metrics()} == {"a", "b", None}
    assert rig.dropped() == {"over_cap": 3}
    facts = {fact.name: fact.text for fact in rig.report().facts}
    assert (facts["groups with metrics"], facts["groups left out"]) == ("2 of at most 2", "2")


def test_a_deleted_group_leaves_its_place(fake: ScriptedCloudWatch, clock: ManualClock) -> None:
    rig = CloudWatchRig(fake, clock, {"max_groups": "1"})
    rig.tell(consumer="a")
    rig.tell(consumer="a", status_text="NOTFOUND", total_lag=None, incident_id=None)
    rig.tell(consumer="b")
    rig.run(5)
    assert len(rig.points(consumer="b")) == 1


def test_an_unreadable_note_loses_only_the_choice_of_groups(rig: CloudWatchRig) -> None:
    rig.log.remember("cloudwatch", "inside", b"\xff")
    rig.restart()
    rig.tell()
    rig.run(5)
    assert len(rig.points()) == 1


def test_a_value_that_cloudwatch_would_refuse_is_dropped_and_the_others_are_sent(rig: CloudWatchRig) -> None:
    ahead = rig.clock.wall + 3 * 3_600_000
    rig.tell(consumer="ahead", observed_at_ms=ahead, source=Source.REST)
    rig.tell(consumer="fine")
    rig.run(5)
    assert len(rig.points(consumer="fine")) == 1
    (refused,) = rig.report().refused
    assert refused == RefusedDatum(
        "Lag {Cluster=prod-eu, ConsumerGroup=ahead}",
        "too_new",
        "it was observed more than two hours ahead of this machine's clock",
        instant(rig.clock.wall - 5_000 + 500),
    )
    assert rig.dropped() == {"too_new": 1}


def test_a_value_that_cloudwatch_does_refuse_is_dropped_with_the_error_text(rig: CloudWatchRig) -> None:
    rig.fake.poison("bad")
    rig.tell(consumer="bad")
    rig.tell(consumer="good")
    rig.run(5)
    assert len(rig.points(consumer="good")) == 1
    (refused,) = rig.report().refused
    assert (refused.what, refused.reason) == ("Lag {Cluster=prod-eu, ConsumerGroup=bad}", "rejected")
    assert rig.log.cursor("cloudwatch") == Cursor(rig.log.log_id, 2)


def test_the_newest_refusal_of_each_metric_is_shown(rig: CloudWatchRig) -> None:
    rig.fake.poison("bad", "worse")
    for _ in range(2):
        rig.tell(consumer="bad")
        rig.tell(consumer="worse")
        rig.run(30)
    refused = rig.report().refused
    assert [each.what for each in refused] == [
        "Lag {Cluster=prod-eu, ConsumerGroup=worse}",
        "Lag {Cluster=prod-eu, ConsumerGroup=bad}",
    ]
    assert {each.at for each in refused} == {rig.report().at}


def test_the_report_shows_the_sent_data_and_the_number_of_groups(rig: CloudWatchRig) -> None:
    observed = rig.clock.wall
    rig.tell(total_lag=12)
    rig.run(5)
    report = rig.report()
    assert report.sent == (
        Sent("Heartbeat {Cluster=prod-eu}", 1.0, "None", instant(observed)),
        Sent("Lag {Cluster=prod-eu, ConsumerGroup=orders-svc}", 12.0, "Count", instant(observed)),
    )
    facts = {fact.name: fact.text for fact in report.facts}
    assert facts["sent"] == "2 data in 1 call"
    assert facts["groups with metrics"] == "1 of at most 1,000"


def test_groups_with_one_name_in_two_clusters_are_counted_in_the_legacy_layout(
    fake: ScriptedCloudWatch, clock: ManualClock
) -> None:
    rig = CloudWatchRig(fake, clock, {"layout": "legacy"})
    rig.tell(cluster="a")
    rig.tell(cluster="b")
    rig.tell(cluster="b")
    rig.run(5)
    assert rig.dropped() == {"name_collision": 1}
    assert [metric.metric for metric in fake.metrics()] == ["orders-svc"]


def test_both_layouts_can_be_sent_at_once(fake: ScriptedCloudWatch, clock: ManualClock) -> None:
    rig = CloudWatchRig(fake, clock, {"layout": "legacy,dimensions"})
    rig.tell(total_lag=4)
    rig.run(5)
    assert [point.value for point in fake.points("Karrot", "orders-svc")] == [4.0]
    assert [value for _, value in rig.points()] == [4.0]


def test_closing_sends_due_data_and_closes_the_client(rig: CloudWatchRig) -> None:
    rig.run(5)
    rig.tell(total_lag=8)
    rig.feed.close()
    assert [value for _, value in rig.points()] == [8.0]
    assert rig.log.cursor("cloudwatch") == Cursor(rig.log.log_id, 1)


def test_a_missing_region_makes_the_reporter_fail_with_the_reason(
    fake: ScriptedCloudWatch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    rig = CloudWatchRig(fake, clock)
    rig.tell()
    rig.run(5)
    (state,) = rig.log.reporters()
    assert (state.state, fake.calls) == ("failing", [])
    assert rig.counted("karrot_reporter_failures_total", "reason") == {"region": 1}


def test_an_unreadable_event_is_counted_and_the_others_are_sent(
    rig: CloudWatchRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misreading(each: GroupState, options: Options) -> GroupData:
        if each.key.consumer == "odd":
            raise ZeroDivisionError
        return data_of(each, options)

    monkeypatch.setattr("karrot.reporters.cloudwatch.reporter.data_of", misreading)
    rig.tell(consumer="odd")
    rig.tell(consumer="even")
    rig.run(5)
    assert len(rig.points(consumer="even")) == 1
    assert rig.dropped() == {"unexpected": 1}
    assert rig.log.cursor("cloudwatch") == Cursor(rig.log.log_id, 2)
