"""The contract tests of the event log; each implementation runs all of them."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.burrow.payload import to_wire
from karrot.event import TEST_CLUSTERS, AgeKind, GroupKey, Kind, LagEvent, Source
from karrot.eventlog.base import (
    READ_LIMIT,
    Appended,
    Counter,
    Cursor,
    Reject,
    ReporterState,
    StoredEvent,
    StoredSummary,
)
from karrot.eventlog.event_log import EventLog
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.manual_clock import ManualClock

STALE_MS = 300_000
RETENTION_MS = 3_600_000
MAX_GROUPS = 5

OpenLog = Callable[[], EventLog]


def append_verdict(log: EventLog, status: str, incident_id: str | None = None, consumer: str = "orders-svc") -> None:
    append_event(log, status_text=status, incident_id=incident_id, incident_start=None, consumer=consumer)


def incidents(log: EventLog, consumer: str = "orders-svc") -> tuple[str | None, int]:
    state = log.group(GroupKey("prod-eu", consumer))
    assert state is not None
    return state.incident.open_id, state.incident.total


def add_to(more: bytes, note: bytes | None) -> bytes:
    return (note or b"") + more


class EventLogContract:
    """Subclasses define the fixture ``open_log``: a log with the limits above, on ``clock``."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def log(self, open_log: OpenLog) -> Iterator[EventLog]:
        log = open_log()
        yield log
        log.close()

    def test_a_new_log_is_empty(self, log: EventLog) -> None:
        assert list(log.read(0)) == []
        assert list(log.live()) == []
        assert log.group(GroupKey("a", "b")) is None
        assert log.event(1) is None
        assert dict(log.heard()) == {}
        assert list(log.reporters()) == []
        assert list(log.counters()) == []
        assert list(log.rejects()) == []
        assert log.writable() is None
        size = log.size()
        assert (size.events, size.groups, size.first_seq, size.last_seq) == (0, 0, 0, 0)

    def test_an_appended_event_is_read_back_completely(self, log: EventLog, clock: ManualClock) -> None:
        event = make_event(total_lag=2**64 - 1, consumer="grüppe-🙂 \x00/?#")
        body = to_wire(event)
        assert log.append(event, body) == Appended(1, tracked=True)
        (stored,) = stored_events(log)
        assert stored == StoredEvent(log.log_id, 1, log.log_time_ms(), stored.summary, body, event)
        assert stored.summary == log.live()[0].summary
        assert (stored.received_at_ms, stored.summary.signals.lag_seconds_kind) == (clock.wall, AgeKind.EXACT)
        assert stored_events(log)[0].event_id == f"{log.log_id}-1"
        assert log.event(1) == stored_events(log)[0]

    def test_sequence_numbers_follow_the_order_of_commits(self, log: EventLog) -> None:
        seqs = [append_event(log, consumer=f"g{n}").seq for n in range(4)]
        assert seqs == [1, 2, 3, 4]
        assert [event.event.consumer for event in stored_events(log)] == ["g0", "g1", "g2", "g3"]
        assert [event.seq for event in stored_events(log, after=2)] == [3, 4]
        assert [event.seq for event in log.read(1, limit=2)] == [2, 3]

    def test_recent_events_of_a_group_are_listed_newest_first(self, log: EventLog) -> None:
        for lag in (1, 2, 3):
            append_event(log, total_lag=lag)
            append_event(log, total_lag=lag * 100, consumer="other")
        found = log.recent([GroupKey("prod-eu", "orders-svc")], limit=2)[0]
        assert [each.summary.total_lag for each in found] == [3, 2]
        assert list(log.recent([GroupKey("prod-eu", "nobody")])[0]) == []

    def test_the_events_since_a_time_are_read_beyond_the_limit_of_one_read(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        began_ms, key = clock.wall_ms(), GroupKey("prod-eu", "orders-svc")
        for lag in range(READ_LIMIT + 100):
            append_event(log, total_lag=lag)
            append_event(log, total_lag=lag, consumer="other")
            clock.advance(1000)
        lags = [each.summary.total_lag for each in log.since(key, began_ms, 10_000)]
        assert lags == list(reversed(range(READ_LIMIT + 100)))
        assert [each.summary.total_lag for each in log.since(key, clock.wall_ms(), 10_000)] == lags[:READ_LIMIT]
        assert [each.summary.total_lag for each in log.since(key, began_ms, 1)] == lags[:READ_LIMIT]
        assert list(log.since(GroupKey("prod-eu", "nobody"), began_ms, 10_000)) == []

    def test_an_event_of_watch_keeps_its_members_and_rebalances_in_its_summary(self, log: EventLog) -> None:
        extras = (("members", "3"), ("rebalances", "12"))
        for source, text in ((Source.KAFKA, "12"), (Source.WEBHOOK, "12"), (Source.KAFKA, "9" * 99)):
            append_event(log, source=source, extras=(extras[0], ("rebalances", text)))
        summaries = [each.summary for each in stored_events(log)]
        assert [(each.members, each.rebalances) for each in summaries] == [(3, 12), (None, None), (3, None)]

    def test_the_recent_summaries_of_several_groups_are_those_of_their_events(self, log: EventLog) -> None:
        for lag in (1, 2, 3):
            append_event(log, total_lag=lag, incident_id=f"id-{lag}")
            append_event(log, total_lag=lag * 100, consumer="other")
        key, nobody, other = (GroupKey("prod-eu", name) for name in ("orders-svc", "nobody", "other"))
        told = [StoredSummary(one.log_id, one.seq, one.log_time_ms, one.summary) for one in stored_events(log)][::-1]
        assert log.recent([nobody, key, other], limit=2) == [[], told[1:4:2], told[0:3:2]]
        assert log.recent([key]) == [told[1::2]]
        assert [(one.summary.incident_id, one.summary.bad_partitions) for one in told[1::2]] == [
            ("id-3", 1),
            ("id-2", 1),
            ("id-1", 1),
        ]
        assert log.recent([]) == []

    def test_live_holds_the_newest_event_of_each_group(self, log: EventLog) -> None:
        append_event(log, total_lag=5)
        append_event(log, total_lag=7)
        append_event(log, total_lag=9, cluster="aa")
        first, second = log.live()
        assert (first.key, first.summary.total_lag) == (GroupKey("aa", "orders-svc"), 9)
        assert (second.key, second.summary.total_lag, second.seq) == (GroupKey("prod-eu", "orders-svc"), 7, 2)

    def test_live_is_ordered_by_key(self, log: EventLog) -> None:
        for consumer in ("b", "", "ü", "a"):
            append_event(log, consumer=consumer)
        assert group_names(log) == ["", "a", "b", "ü"]

    def test_live_holds_what_the_log_holds_after_every_change(self, log: EventLog, clock: ManualClock) -> None:
        def agrees() -> bool:
            stored = (log.group(GroupKey("prod-eu", consumer)) for consumer in ("a", "b", "new", "ü"))
            return list(log.live()) == [state for state in stored if state]

        assert agrees()
        for consumer in ("b", "a", "ü", "b"):
            append_event(log, consumer=consumer)
            assert agrees()
        unchanged, *_ = log.live()
        append_event(log, consumer="b", total_lag=7)
        assert log.live()[0] is unchanged  # read and decoded once
        assert agrees()
        clock.advance(200_000)
        append_event(log, consumer="a", status_text="NOTFOUND", incident_id=None)
        append_event(log, consumer="new")
        assert agrees()
        clock.advance(150_000)
        assert agrees()
        assert [state.key.consumer for state in log.live()] == ["new"]

    def test_changed_holds_the_groups_with_newer_events_in_their_order(self, log: EventLog) -> None:
        for consumer in ("a", "b", "c", "a"):
            append_event(log, consumer=consumer)
        assert [(one.last_seq, one.key.consumer) for one in log.changed(0)] == [(2, "b"), (3, "c"), (4, "a")]
        assert list(log.changed(2)) == [log.group(GroupKey("prod-eu", name)) for name in "ca"]
        assert list(log.changed(4)) == []
        append_event(log, consumer="b", status_text="NOTFOUND", incident_id=None)
        assert [(one.last_seq, one.key.consumer, one.gone) for one in log.changed(4)] == [(5, "b", True)]

    def test_summaries_holds_the_stored_events_among_some(self, log: EventLog) -> None:
        for total_lag in (5, 7, 9):
            append_event(log, total_lag=total_lag)
        assert {seq: one.total_lag for seq, one in log.summaries([3, 1, 99]).items()} == {1: 5, 3: 9}
        assert log.summaries([]) == {}

    def test_a_summary_has_the_values_of_the_event(self, log: EventLog, clock: ManualClock) -> None:
        event = make_event()
        append_event(log)
        state = log.group(GroupKey("prod-eu", "orders-svc"))
        assert state is not None
        summary = state.summary
        assert (summary.status_text, summary.kind, summary.source) == ("WARN", Kind.INCIDENT, Source.WEBHOOK)
        assert (summary.observed_at_ms, summary.received_at_ms) == (event.observed_at_ms, clock.wall)
        assert (summary.total_lag, summary.max_lag, summary.max_lag_topic) == (11_020, 10_440, "orders.v1")
        assert (summary.partition_count, summary.complete, summary.bad) == (12, 1.0, (1, 0, 0, 0))
        assert summary.last_commit_ms == 1_746_950_399_000
        assert summary.signals.scalable_lag == 11_020

    def test_an_event_observed_before_the_newest_is_logged_but_changes_nothing(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        clock.advance(60_000)
        append_event(log, total_lag=1)
        append_event(log, total_lag=99, age_ms=5_000, source=Source.REST)
        assert [event.event.total_lag for event in stored_events(log)] == [1, 99]
        state = log.group(GroupKey("prod-eu", "orders-svc"))
        assert state is not None
        assert (state.seq, state.summary.total_lag) == (1, 1)
        recent = log.recent([state.key])[0]
        assert [event.seq for event in recent] == [2, 1]

    def test_the_newest_event_wins_by_arrival_for_any_wall_clock(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log, total_lag=1)
        clock.jump(-86_400_000)
        append_event(log, total_lag=2)
        clock.jump(10 * 86_400_000)
        append_event(log, total_lag=3)
        state = log.group(GroupKey("prod-eu", "orders-svc"))
        assert state is not None
        assert state.summary.total_lag == 3

    def test_the_last_complete_list_counts_with_the_webhooks_after_it(self, log: EventLog, clock: ManualClock) -> None:
        def lags() -> dict[int, int | None]:
            state = log.group(GroupKey("prod-eu", "orders-svc"))
            listed = state and log.listed(state)
            return {each.partition: each.current_lag for each in listed.partitions} if listed else {}

        whole = tuple(make_partition(partition=number, current_lag=number) for number in range(3))
        append_event(log, source=Source.REST, partitions=whole, max_lag=whole[2])
        for lag in (50, 60):
            clock.advance(STALE_MS // 2)
            append_event(log, partitions=(make_partition(partition=1, current_lag=lag),), max_lag=None)
            append_event(log, consumer="another")
        assert lags() == {0: 0, 1: 60, 2: 2}
        clock.advance(1)
        assert lags() == {1: 60}

    def test_burrows_verdict_counts_and_kafkas_stands_beside_it_without_changing_its_incident(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        def seen() -> tuple[str, str | None]:
            [state] = log.live()
            assert state == log.group(state.key)
            return state.summary.status_text, state.summary.second and state.summary.second.status_text

        append_event(log, status_text="ERR")
        assert seen() == ("ERR", None)
        append_event(log, source=Source.KAFKA, status_text="OK", incident_id=None)
        assert seen() == ("ERR", "OK")
        append_event(log, status_text="WARN")
        assert seen() == ("WARN", "OK")
        append_event(log, source=Source.KAFKA, status_text="ERR")
        assert seen() == ("WARN", "ERR")
        [state] = log.live()
        append_event(log, source=Source.KAFKA, status_text="OK", incident_id=None)
        assert seen() == ("WARN", "OK")
        assert [each.incident for each in log.live()] == [state.incident]
        clock.advance(STALE_MS // 2)
        append_event(log, source=Source.KAFKA, status_text="ERR")
        assert seen() == ("ERR", None)

    def test_in_whatever_order_verdicts_arrive_the_newest_of_each_judge_counts(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        said = ((Source.WEBHOOK, "ERR"), (Source.KAFKA, "STOP"), (Source.REST, "WARN"), (Source.KAFKA, "OK"))
        for order in permutations(range(len(said))):
            for second in order:
                source, status = said[second]
                age_ms = 1000 * (len(said) - second)
                append_event(log, source=source, status_text=status, incident_id=None, age_ms=age_ms)
            state = log.group(GroupKey("prod-eu", "orders-svc"))
            assert state is not None
            assert state.summary.second is not None
            assert (state.summary.status_text, state.summary.second.status_text) == ("WARN", "OK")
            # Replicas of another version read the stored state: a tuple with a field more would be damaged for them.
            assert len(msgspec.to_builtins(state.summary.second)) == 4
            append_event(log, source=Source.REST, status_text="NOTFOUND", incident_id=None)
            append_event(log, source=Source.KAFKA, status_text="ERR", incident_id=None, age_ms=1)
            assert log.group(state.key) is None
            clock.advance(60_000)

    def test_a_silent_group_expires_and_is_counted_once(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log)
        clock.advance(STALE_MS)
        assert group_names(log) == ["orders-svc"]
        assert log.expire() == 0
        clock.advance(1)
        assert group_names(log) == []
        assert log.group(GroupKey("prod-eu", "orders-svc")) is None
        assert (log.expire(), log.expire()) == (1, 0)
        append_event(log)
        assert group_names(log) == ["orders-svc"]
        clock.advance(STALE_MS + 1)
        assert log.expire() == 1

    def test_no_jump_of_the_wall_clock_expires_or_revives_a_group(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log)
        clock.jump(86_400_000)
        assert group_names(log) == ["orders-svc"]
        clock.advance(STALE_MS + 1)
        clock.jump(-2 * 86_400_000)
        assert group_names(log) == []

    def test_an_old_observation_expires_by_its_own_age(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log, age_ms=STALE_MS - 10, source=Source.REST)
        assert group_names(log) == ["orders-svc"]
        clock.advance(11)
        assert group_names(log) == []

    def test_a_group_that_vanished_is_known_by_its_name_until_it_returns(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        for consumer in ("silent\0", "deleted", "live"):
            append_verdict(log, "WARN", consumer=consumer)
        append_verdict(log, "NOTFOUND", consumer="deleted")
        assert log.vanished() == [GroupKey("prod-eu", "deleted")]
        clock.advance(STALE_MS + 1)
        append_verdict(log, "WARN", consumer="live")
        log.expire()
        assert sorted(log.vanished()) == [GroupKey("prod-eu", "deleted"), GroupKey("prod-eu", "silent\0")]
        append_verdict(log, "WARN", consumer="silent\0")
        assert log.vanished() == [GroupKey("prod-eu", "deleted")]

    def test_a_deleted_group_is_removed_at_once_and_may_return(self, log: EventLog) -> None:
        append_verdict(log, "ERR", "i1")
        append_verdict(log, "NOTFOUND")
        assert group_names(log) == []
        assert log.expire() == 0
        append_verdict(log, "OK")
        assert incidents(log) == (None, 1)

    def test_an_incident_opens_once_and_ends_with_its_close(self, log: EventLog) -> None:
        append_verdict(log, "OK")
        assert incidents(log) == (None, 0)
        for status in ("WARN", "ERR", "WARN"):
            append_verdict(log, status, "i1")
            assert incidents(log) == ("i1", 1)
        append_verdict(log, "OK", "i1")
        assert incidents(log) == (None, 1)

    def test_an_incident_starts_at_burrows_time_or_at_its_first_event(self, log: EventLog) -> None:
        append_event(log)
        append_verdict(log, "WARN", "i2", consumer="no-start")
        told = log.group(GroupKey("prod-eu", "orders-svc"))
        seen = log.group(GroupKey("prod-eu", "no-start"))
        assert told is not None
        assert seen is not None
        assert told.incident.since_ms == 1_746_950_292_304
        assert seen.incident.since_ms == make_event().observed_at_ms

    @pytest.mark.parametrize(
        ("verdicts", "expected"),
        [
            ([("WARN", "i1"), ("WARN", "i2")], ("i2", 2)),
            ([("WARN", "i1"), ("OK", None)], (None, 1)),
            ([("WARN", "i1"), ("NOTFOUND", None), ("OK", None)], (None, 1)),
            ([("OK", "i1")], (None, 1)),
            ([("WARN", "i1"), ("OK", "i2")], (None, 2)),
            ([("WARN", "i1"), ("OK", "i1"), ("ERR", "i1")], (None, 1)),
            ([("WARN", "i1"), ("WARN", "i2"), ("OK", "i1")], (None, 2)),
            ([("WARN", "i1"), ("ERR", None)], ("i1", 1)),
            ([("ERR", None)], (None, 0)),
            ([("WARN", "i1"), ("UNHEARD-OF", "i1")], ("i1", 1)),
        ],
        ids=[
            "another id ends it",
            "an observation ends it",
            "a deletion ends it",
            "a close without an open counts",
            "a close of another id ends both",
            "a late event does not reopen it",
            "a close under an older id, after a failover and back, ends it too",
            "a verdict without an id attaches to it",
            "a verdict without an id opens none",
            "an unknown status changes nothing",
        ],
    )
    def test_incidents_open_and_end_as_listed(
        self, log: EventLog, verdicts: list[tuple[str, str | None]], expected: tuple[str | None, int]
    ) -> None:
        for status, incident_id in verdicts:
            append_verdict(log, status, incident_id)
        assert incidents(log) == expected

    def test_the_last_eight_incidents_are_remembered(self, log: EventLog) -> None:
        for n in range(9):
            append_verdict(log, "WARN", f"i{n}")
        append_verdict(log, "WARN", "i1")
        assert incidents(log) == ("i8", 9)
        append_verdict(log, "WARN", "i0")
        assert incidents(log) == ("i0", 10)

    def test_the_count_of_incidents_survives_expiry_and_the_incident_resumes(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        append_verdict(log, "WARN", "i1")
        clock.advance(STALE_MS + 1)
        assert log.expire() == 1
        append_verdict(log, "WARN", "i1")
        assert incidents(log) == ("i1", 1)

    def test_groups_beyond_the_bound_are_logged_but_not_tracked(self, log: EventLog) -> None:
        for n in range(MAX_GROUPS):
            assert append_event(log, consumer=f"g{n}").tracked
        assert append_event(log, consumer="one too many") == Appended(MAX_GROUPS + 1, tracked=False)
        assert append_event(log, consumer="g0", total_lag=77).tracked
        assert "one too many" not in group_names(log)
        assert log.size().events == MAX_GROUPS + 2

    def test_a_silent_group_makes_room_for_another(self, log: EventLog, clock: ManualClock) -> None:
        for n in range(MAX_GROUPS):
            append_event(log, consumer=f"g{n}")
        clock.advance(STALE_MS + 1)
        log.expire()
        assert append_event(log, consumer="newcomer").tracked
        assert group_names(log) == ["newcomer"]

    def test_only_webhooks_count_as_hearing_burrow(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log, cluster="a")
        heard_at = clock.wall
        clock.advance(1_000)
        append_event(log, cluster="a", source=Source.REST)
        append_event(log, cluster="b", source=Source.KAFKA)
        clock.advance(10 * STALE_MS)
        assert dict(log.heard()) == {"a": heard_at}

    def test_a_posted_deletion_forgets_the_cluster_until_its_burrow_posts_again(
        self, log: EventLog, clock: ManualClock
    ) -> None:
        append_event(log, cluster="a")
        append_event(log, cluster="b")
        append_event(log, cluster="a", status_text="NOTFOUND", incident_id=None)
        append_event(log, cluster="b", status_text="NOTFOUND", incident_id=None, source=Source.REST)
        assert dict(log.heard()) == {"b": clock.wall}
        append_event(log, cluster="a")
        assert dict(log.heard()) == {"a": clock.wall, "b": clock.wall}

    def test_a_test_does_not_count_as_hearing_burrow(self, log: EventLog) -> None:
        for cluster in TEST_CLUSTERS:
            append_event(log, cluster=cluster)
            append_event(log, cluster=cluster, consumer="watched", source=Source.KAFKA)
        assert dict(log.heard()) == {}
        assert [state.is_test for state in log.live()] == [True, False] * 2

    def test_a_test_that_an_older_karrot_stored_does_not_count_as_hearing_burrow(self, log: EventLog) -> None:
        with pytest.MonkeyPatch.context() as older:
            older.setattr("karrot.event.TEST_CLUSTERS", ())
            append_event(log, cluster="try")
            append_event(log, cluster="prod-eu")
        assert log.heard().keys() == {"prod-eu"}

    def test_the_last_note_of_a_reporter_is_kept_by_name(self, log: EventLog) -> None:
        assert log.recall("cloudwatch", "inside") is None
        log.remember("cloudwatch", "inside", b"one")
        log.remember("cloudwatch", "inside", b"two")
        log.remember("cloudwatch", "report", b"\x00")
        log.remember("other", "inside", b"")
        assert log.recall("cloudwatch", "inside") == b"two"
        assert log.recall("cloudwatch", "report") == b"\x00"
        assert log.recall("other", "inside") == b""
        log.remember_soon("cloudwatch", "inside", b"three")
        log.flush()
        assert log.recall("cloudwatch", "inside") == b"three"

    def test_a_revision_of_a_note_sees_the_note_and_earlier_revisions(self, log: EventLog) -> None:
        log.revise("karrot mutes", "mutes", lambda note: b"" if note is None else b"not new")
        log.remember("karrot mutes", "mutes", b"one")
        for more in (b",two", b",three"):
            log.revise("karrot mutes", "mutes", partial(add_to, more))
        assert log.recall("karrot mutes", "mutes") == b"one,two,three"

    def test_a_reporters_cursor_and_state_are_kept(self, log: EventLog) -> None:
        append_event(log)
        state = ReporterState("stdout", Cursor(log.log_id, 1), "failing", "boom", 5, 4)
        log.save_reporter(state)
        log.save_reporter(ReporterState("cloudwatch", None))
        assert log.cursor("stdout") == Cursor(log.log_id, 1)
        assert log.cursor("cloudwatch") is None
        assert log.cursor("nobody") is None
        assert list(log.reporters()) == [ReporterState("cloudwatch", None), state]

    def test_counters_are_summed(self, log: EventLog) -> None:
        log.count("karrot_x_total", code="a")
        log.count("karrot_x_total", 2, code="b")
        log.flush()
        log.count("karrot_x_total", code="a")
        log.count("karrot_y_total")
        assert sorted(log.counters()) == [
            Counter("karrot_x_total", (("code", "a"),), 2),
            Counter("karrot_x_total", (("code", "b"),), 2),
            Counter("karrot_y_total", (), 1),
        ]

    def test_accepted_events_are_counted_with_their_source(self, log: EventLog) -> None:
        append_event(log)
        append_event(log, source=Source.REST)
        append_event(log)
        assert sorted(log.counters()) == [
            Counter("karrot_events_accepted_total", (("source", "rest"),), 1),
            Counter("karrot_events_accepted_total", (("source", "webhook"),), 2),
        ]

    def test_the_newest_rejects_are_kept(self, log: EventLog) -> None:
        for n in range(1_005):
            log.reject(Reject(n, "invalid_json", "no", Source.WEBHOOK, b"\xff{"))
            if n == 500:
                log.flush()
        log.flush()
        newest = log.rejects(limit=2)
        assert list(newest) == [
            Reject(1_004, "invalid_json", "no", Source.WEBHOOK, b"\xff{"),
            Reject(1_003, "invalid_json", "no", Source.WEBHOOK, b"\xff{"),
        ]
        assert len(log.rejects(limit=2_000)) == 1_000

    def test_events_beyond_their_age_are_pruned_oldest_first(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log, total_lag=1)
        append_event(log, total_lag=2)
        clock.advance(1)
        append_event(log, total_lag=3)
        clock.advance(RETENTION_MS - 1)
        assert log.prune() == 0
        clock.advance(1)
        assert log.prune() == 2
        assert [event.seq for event in stored_events(log)] == [3]
        assert (log.size().events, log.size().first_seq, log.size().last_seq) == (1, 3, 3)
        assert Counter("karrot_log_pruned_total", (), 2) in log.counters()

    def test_a_sequence_number_is_never_reused(self, log: EventLog, clock: ManualClock) -> None:
        append_event(log)
        append_event(log)
        clock.advance(RETENTION_MS + 1)
        assert log.prune() == 2
        assert append_event(log).seq == 3

    def test_only_one_process_leads(self, log: EventLog) -> None:
        assert log.lead()
        assert log.lead()
        log.resign()
        assert log.lead()

    def test_any_event_is_kept_unchanged(self, log: EventLog) -> None:
        @settings(max_examples=60, deadline=None)
        @given(event=event_strategy(), age_ms=st.integers(0, 10_000))
        def keep(event: LagEvent, age_ms: int) -> None:
            before = log.size().last_seq
            log.append(event, to_wire(event), age_ms=age_ms)
            assert stored_events(log, after=before)[0].event == event

        keep()
