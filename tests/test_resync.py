"""Resync reads groups from the REST API of a fake Burrow, on the test's own clock."""

import threading
from collections.abc import Iterator
from random import Random
from typing import cast

import pytest

from karrot import burrow_cut_off
from karrot.burrow.client import Burrow, NotFound
from karrot.burrow.payload import to_wire
from karrot.event import GroupKey, Kind, LagEvent, Source
from karrot.eventlog.base import GroupState, LogUnavailableError, StoredEvent
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.http_client import Unavailable
from karrot.intake import Intake
from karrot.resync import Resync
from karrot.runbooks_and_remedies import RESYNC
from support.burrow.fake.rest_api import BurrowServer
from support.burrow.fake_burrow_rig import simulated_group
from support.burrow.lag_events import make_event
from support.burrow.restartable_burrow import Outage, RestartableApi, RestartableBurrow
from support.manual_clock import ManualClock

CLUSTERS = ("prod-eu", "prod-us")


class Unhurried(threading.Event):
    """A service that does not stop and whose waits take no time. ``waited`` are the seconds of each wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        return super().wait(0) if timeout is not None else super().wait()


@pytest.fixture
def log(clock: ManualClock) -> MemoryEventLog:
    return MemoryEventLog(clock, stale_after_ms=3_600_000)


@pytest.fixture
def world(clock: ManualClock) -> RestartableBurrow:
    members = {
        cluster: [
            simulated_group(f"burrow-{cluster}", topic="__consumer_offsets"),
            *(simulated_group(f"{name}-{cluster}") for name in ("orders", "billing", "audit")),
        ]
        for cluster in CLUSTERS
    }
    return RestartableBurrow(members, Random(3), start_ms=clock.wall_ms())


@pytest.fixture
def server(world: RestartableBurrow, clock: ManualClock) -> Iterator[BurrowServer]:
    with BurrowServer(RestartableApi(world, clock, Random(1))) as serving:
        yield serving


@pytest.fixture
def burrow(server: BurrowServer, clock: ManualClock) -> Iterator[Burrow]:
    with Burrow(server.url, now_ms=clock.wall_ms) as client:
        yield client


@pytest.fixture
def resync(burrow: Burrow, log: MemoryEventLog, clock: ManualClock) -> Resync:
    return Resync(burrow, Intake(log, clock), log, clock, interval_s=120)


def once(resync: Resync, clock: ManualClock, *, after_s: float = 0) -> None:
    clock.advance(int(after_s * 1000))
    resync.once(Unhurried())


def known(log: MemoryEventLog) -> dict[GroupKey, GroupState]:
    return {state.key: state for state in log.live()}


def counted(log: MemoryEventLog, name: str) -> dict[str, float]:
    return {dict(each.labels)["outcome"]: each.value for each in log.counters() if each.name == name}


def heard(log: MemoryEventLog, consumer: str, cluster: str = "prod-eu", **more: object) -> None:
    event = make_event(consumer=consumer, cluster=cluster, **more)
    Intake(log, ManualClock()).accept(event)


def test_every_group_that_burrow_lists_is_stored_with_all_its_partitions(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow
) -> None:
    once(resync, clock, after_s=30)
    listed = {GroupKey(cluster, group) for cluster in CLUSTERS for group in burrow.consumers(cluster)}
    assert set(known(log)) == listed
    for key, state in known(log).items():
        event = cast("StoredEvent", log.event(state.seq)).event
        assert (event.source, event.observed_at_ms) == (Source.REST, clock.wall)
        assert event.total_lag == burrow.lag(*key).total_lag
        assert len(event.partitions) == event.partition_count
    assert counted(log, "karrot_resync_runs_total") == {"ok": 1}
    assert counted(log, "karrot_resync_groups_total") == {"taken": len(listed)}


def test_resync_changes_neither_the_dead_man_metric_nor_the_count_of_webhooks(
    resync: Resync, log: MemoryEventLog, clock: ManualClock
) -> None:
    once(resync, clock)
    assert dict(log.heard()) == {}
    (accepted,) = [each for each in log.counters() if each.name == "karrot_events_accepted_total"]
    assert dict(accepted.labels) == {"source": "rest"}


def test_a_burrow_that_reads_no_more_commits_is_cut_off_although_it_answers_with_fresh_verdicts(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        once(resync, clock, after_s=500)
    answers = {key: burrow.lag(*key) for key in known(log)}
    own = answers[GroupKey("prod-eu", "burrow-prod-eu")]
    newest_ms = max(each.end.timestamp_ms for each in own.partitions if each.end)
    assert {name: each.newest_ms for name, each in burrow_cut_off.read(log).items()}["prod-eu"] == newest_ms
    assert burrow_cut_off.cut_off(log) == frozenset()

    def remembered(cluster: str, group: str) -> LagEvent:
        return answers[GroupKey(cluster, group)]._replace(observed_at_ms=clock.wall)

    monkeypatch.setattr(burrow, "lag", remembered)
    once(resync, clock, after_s=301)
    assert burrow_cut_off.cut_off(log) == set(CLUSTERS)
    assert burrow_cut_off.read(log)["prod-eu"].newest_ms == newest_ms
    assert all(state.summary.observed_at_ms == clock.wall for state in known(log).values())


@pytest.mark.parametrize(("moving", "found"), [("all topics", set()), ("burrow-prod-eu", {"prod-eu"})])
def test_log_ends_that_move_without_commits_are_a_sign_of_life_unless_the_commits_only_do_not_reach_burrow(
    resync: Resync,
    log: MemoryEventLog,
    clock: ManualClock,
    burrow: Burrow,
    monkeypatch: pytest.MonkeyPatch,
    *,
    moving: str,
    found: set[str],
) -> None:
    monkeypatch.setattr(burrow_cut_off, "_STEADY_MS", 100_000)
    for _ in range(3):
        once(resync, clock, after_s=60)
    answers = {key: burrow.lag(*key) for key in known(log)}

    def written(cluster: str, group: str) -> LagEvent:
        event = answers[GroupKey(cluster, group)]
        grows = group == moving or not group.startswith("burrow-")
        more = (clock.wall - 1_800_000_000_000) // 1000 if grows else 0
        ends = (each._replace(current_lag=(each.current_lag or 0) + more) for each in event.partitions)
        return event._replace(observed_at_ms=clock.wall, partitions=tuple(ends))

    monkeypatch.setattr(burrow, "lag", written)
    for _ in range(5):
        once(resync, clock, after_s=100)
    assert burrow_cut_off.cut_off(log) == found


def test_a_burrow_that_is_cut_off_stays_so_if_it_lists_no_groups_any_more(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burrow_cut_off, "_STEADY_MS", 100_000)
    for _ in range(3):
        once(resync, clock, after_s=60)
    monkeypatch.setattr(burrow, "consumers", lambda _: [])
    for _ in range(4):  # an empty list is no sign of life, so that the first one of them counts
        once(resync, clock, after_s=100)
    assert burrow_cut_off.cut_off(log) == set(CLUSTERS)
    for _ in range(6):
        once(resync, clock, after_s=100)
    assert burrow_cut_off.cut_off(log) == set(CLUSTERS)


def test_a_newer_webhook_wins_over_an_answer_to_an_earlier_request(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = burrow.consumers("prod-eu")[0]
    asked = burrow.lag

    def slow(cluster: str, name: str) -> object:
        answer = asked(cluster, name)
        clock.advance(2_000)
        if (cluster, name) == ("prod-eu", group):
            event = make_event(consumer=group, total_lag=777_777)
            Intake(log, clock).accept(event)
        return answer

    monkeypatch.setattr(burrow, "lag", slow)
    once(resync, clock)
    assert known(log)[GroupKey("prod-eu", group)].summary.total_lag == 777_777


def test_a_group_that_two_lists_a_minute_apart_lack_is_deleted_and_its_incident_closed(
    resync: Resync, log: MemoryEventLog, clock: ManualClock
) -> None:
    heard(log, "gone")
    once(resync, clock)
    once(resync, clock, after_s=59)
    assert GroupKey("prod-eu", "gone") in known(log)
    once(resync, clock, after_s=1)
    assert GroupKey("prod-eu", "gone") not in known(log)
    (newest, _) = log.recent([GroupKey("prod-eu", "gone")])[0]
    assert (newest.summary.kind, newest.summary.source) == (Kind.DELETED, Source.REST)
    assert counted(log, "karrot_resync_groups_total")["deleted"] == 1


def test_an_answer_beyond_a_bound_is_refused_and_counted_and_the_other_groups_are_read(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = burrow.consumers("prod-eu")[0]
    asked = burrow.lag

    def with_a_long_status(cluster: str, name: str) -> LagEvent:
        answer = asked(cluster, name)
        return answer._replace(status_text="x" * 65) if (cluster, name) == ("prod-eu", first) else answer

    monkeypatch.setattr(burrow, "lag", with_a_long_status)
    once(resync, clock)
    listed = {GroupKey(cluster, group) for cluster in CLUSTERS for group in burrow.consumers(cluster)}
    assert set(known(log)) == listed - {("prod-eu", first)}
    assert counted(log, "karrot_resync_groups_total") == {"taken": len(listed) - 1, "refused": 1}
    assert counted(log, "karrot_resync_runs_total") == {"ok": 1}
    [reject] = log.rejects()
    assert (reject.code, reject.source) == ("invalid_field", Source.REST)


def test_a_group_whose_long_name_an_older_karrot_stored_is_deleted_and_does_not_come_back(
    resync: Resync, log: MemoryEventLog, clock: ManualClock
) -> None:
    event = make_event(consumer="x" * 2000, cluster="prod-eu")
    log.append(event, to_wire(event))
    heard(log, "gone")
    for _ in range(2):
        once(resync, clock, after_s=60)
    assert {GroupKey("prod-eu", "gone"), GroupKey("prod-eu", event.consumer)}.isdisjoint(known(log))
    assert counted(log, "karrot_resync_groups_total")["deleted"] == 2
    assert counted(log, "karrot_resync_runs_total") == {"ok": 2}
    deletion = event._replace(status_text="NOTFOUND", source=Source.REST)
    assert Intake(log, clock).accept(deletion) is None


def test_a_group_that_was_heard_in_between_is_not_deleted(
    resync: Resync, log: MemoryEventLog, clock: ManualClock
) -> None:
    heard(log, "elsewhere")
    for _ in range(5):
        once(resync, clock, after_s=50)
        heard(log, "elsewhere")
    assert GroupKey("prod-eu", "elsewhere") in known(log)
    assert "deleted" not in counted(log, "karrot_resync_groups_total")  # an event after a deletion would hide it


def test_a_group_that_only_kafka_still_shows_is_not_deleted_while_burrows_last_verdict_counts(
    resync: Resync, log: MemoryEventLog, clock: ManualClock
) -> None:
    def judge(status: str, source: Source) -> None:
        event = make_event(consumer="elsewhere", status_text=status, source=source, observed_at_ms=clock.wall)
        log.append(event, to_wire(event))

    judge("ERR", Source.WEBHOOK)
    for status in ("OK", "ERR", "ERR", "OK"):
        once(resync, clock, after_s=120)
        judge(status, Source.KAFKA)
    assert known(log)[GroupKey("prod-eu", "elsewhere")].summary.source is Source.WEBHOOK
    for _ in range(2):
        once(resync, clock, after_s=120)
        assert "deleted" not in counted(log, "karrot_resync_groups_total")
        judge("OK", Source.KAFKA)
    for _ in range(3):
        once(resync, clock, after_s=120)
    assert counted(log, "karrot_resync_groups_total")["deleted"] == 1


def test_a_group_that_is_listed_again_in_between_is_kept(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard(log, "flickering")
    lists = burrow.consumers
    once(resync, clock)
    with monkeypatch.context() as listed:
        listed.setattr(burrow, "consumers", lambda cluster: (*lists(cluster), "flickering"))
        once(resync, clock, after_s=50)
    once(resync, clock, after_s=50)
    assert GroupKey("prod-eu", "flickering") in known(log)


def test_a_just_started_burrow_causes_no_deletion(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, world: RestartableBurrow
) -> None:
    once(resync, clock, after_s=30)
    before = set(known(log))
    world.restart(Outage(down=0, starting=200, loading=200))
    for _ in range(6):
        once(resync, clock, after_s=60)
    assert set(known(log)) == before
    assert "deleted" not in counted(log, "karrot_resync_groups_total")


def test_a_burrow_without_a_readiness_call_is_read_and_causes_no_deletion(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burrow, "ready", lambda: None)
    heard(log, "gone")
    for _ in range(3):
        once(resync, clock, after_s=61)
    assert GroupKey("prod-eu", "gone") in known(log)
    assert counted(log, "karrot_resync_runs_total") == {"ok": 3}


def test_groups_of_other_clusters_are_not_changed(resync: Resync, log: MemoryEventLog, clock: ManualClock) -> None:
    heard(log, "orders", cluster="another")
    for _ in range(3):
        once(resync, clock, after_s=61)
    assert GroupKey("another", "orders") in known(log)


def test_an_unreachable_burrow_is_logged_and_counted_and_changes_no_group(
    log: MemoryEventLog, clock: ManualClock
) -> None:
    heard(log, "orders")
    away = Resync(Burrow("http://127.0.0.1:1"), Intake(log, clock), log, clock, interval_s=120)
    once(away, clock)
    (state,) = log.reporters()
    assert (state.name, state.state) == (RESYNC, "failing")
    assert "127.0.0.1:1" in str(state.last_error)
    assert counted(log, "karrot_resync_runs_total") == {"failed": 1}
    assert set(known(log)) == {GroupKey("prod-eu", "orders")}


def test_a_burrow_that_lists_thousands_and_answers_for_none_is_not_asked_again_until_the_next_pass(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(_cluster: str, group: str) -> None:
        asked.append(group)
        raise Unavailable("http://burrow", "no answer within 5 s")

    monkeypatch.setattr(burrow, "consumers", lambda _: tuple(map(str, range(2_000))))
    monkeypatch.setattr(burrow, "lag", silent)
    once(resync, clock)
    assert 20 <= len(asked) < 30
    assert log.reporters()[0].last_error == "http://burrow: no answer within 5 s"
    asked.clear()
    once(resync, clock)
    assert 20 <= len(asked) < 30


def test_a_cluster_that_a_pass_did_not_read_is_not_cut_off(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        once(resync, clock, after_s=500)
    asked = burrow.lag

    def lag(cluster: str, name: str) -> LagEvent:
        if cluster == "prod-eu":
            raise Unavailable("http://burrow", "no answer within 5 s")
        return asked(cluster, name)

    first = [f"slow-{number}" for number in range(30)]
    listed = burrow.consumers
    monkeypatch.setattr(burrow, "clusters", lambda: ("prod-eu", "prod-us"))
    monkeypatch.setattr(burrow, "consumers", lambda name: first if name == "prod-eu" else listed(name))
    monkeypatch.setattr(burrow, "lag", lag)
    for _ in range(3):
        once(resync, clock, after_s=120)
    assert burrow_cut_off.cut_off(log) == frozenset()


def test_an_error_of_one_group_or_one_cluster_ends_the_pass_of_no_other(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, listed = burrow.lag, burrow.consumers
    first, *rest = listed(CLUSTERS[-1])

    def lag(cluster: str, name: str) -> LagEvent:
        if name == first:
            raise RecursionError("too deep")
        return asked(cluster, name)

    def consumers(cluster: str) -> tuple[str, ...]:
        if cluster == CLUSTERS[0]:
            raise Unavailable("http://burrow", "HTTP 500")
        return tuple(listed(cluster))

    monkeypatch.setattr(burrow, "clusters", lambda: CLUSTERS)
    monkeypatch.setattr(burrow, "lag", lag)
    monkeypatch.setattr(burrow, "consumers", consumers)
    once(resync, clock)
    assert {key.consumer for key in known(log) if key.cluster == CLUSTERS[-1]} == {*rest}
    assert counted(log, "karrot_resync_runs_total") == {"failed": 1}


def test_timeouts_between_answers_do_not_end_a_pass(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = burrow.lag
    group = burrow.consumers("prod-eu")[0]

    def answers_every_second_request(_cluster: str, name: str) -> LagEvent:
        if int(name) % 2:
            raise Unavailable("http://burrow", "no answer within 5 s")
        return asked("prod-eu", group)

    monkeypatch.setattr(burrow, "clusters", lambda: ("prod-eu",))
    monkeypatch.setattr(burrow, "consumers", lambda _: tuple(map(str, range(60))))
    monkeypatch.setattr(burrow, "lag", answers_every_second_request)
    once(resync, clock)
    assert counted(log, "karrot_resync_groups_total") == {"taken": 30, "unavailable": 30}


def test_burrow_gets_at_most_four_requests_at_once_and_a_hundred_in_a_second(
    resync: Resync, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, together, stop = set[str](), threading.Barrier(4), Unhurried()

    def answer(_cluster: str, _group: str) -> None:
        threads.add(threading.current_thread().name)
        together.wait(20)
        raise NotFound("http://burrow", "deleted")

    monkeypatch.setattr(burrow, "clusters", lambda: ("prod-eu",))
    monkeypatch.setattr(burrow, "consumers", lambda _: tuple(map(str, range(8))))
    monkeypatch.setattr(burrow, "lag", answer)
    resync.once(stop)
    assert (len(threads), stop.waited) == (4, [0.04] * 8)


def test_a_cluster_that_disappears_after_the_list_does_not_stop_the_others(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burrow, "clusters", lambda: ("gone", *CLUSTERS))
    once(resync, clock)
    assert {key.cluster for key in known(log)} == set(CLUSTERS)
    assert "gone" in str(log.reporters()[0].last_error)


def test_a_name_that_no_url_can_hold_is_counted_and_the_others_are_stored(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, burrow: Burrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = burrow.consumers
    monkeypatch.setattr(burrow, "consumers", lambda cluster: ("a/b", *lists(cluster)))
    once(resync, clock)
    assert counted(log, "karrot_resync_groups_total")["unaddressable"] == 2
    assert counted(log, "karrot_resync_runs_total") == {"ok": 1}


def test_a_log_that_cannot_be_written_is_reported_and_the_next_pass_continues(
    resync: Resync, log: MemoryEventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise LogUnavailableError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(log, "append", full)
        once(resync, clock)
    assert log.reporters()[0].last_error == "no room"
    once(resync, clock)
    assert log.reporters()[0].state == "ok"


def test_resync_runs_at_once_and_after_each_interval_until_it_is_stopped(
    burrow: Burrow, log: MemoryEventLog, clock: ManualClock
) -> None:
    class Twice(threading.Event):
        waited: list[float | None]

        def wait(self, timeout: float | None = None) -> bool:
            if timeout == 120:
                self.waited.append(timeout)
                if len(self.waited) == 2:
                    self.set()
            return self.is_set()

    stop = Twice()
    stop.waited = []
    Resync(burrow, Intake(log, clock), log, clock, interval_s=120).run(stop)
    assert counted(log, "karrot_resync_runs_total") == {"ok": 2}


def test_a_stop_ends_a_pass_over_many_groups_at_once(resync: Resync, log: MemoryEventLog, server: BurrowServer) -> None:
    stop = threading.Event()
    stop.set()
    resync.once(stop)
    assert known(log) == {}
    assert not any("/lag" in asked for asked in server.asked)
