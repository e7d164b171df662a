"""The outputs of a poll: the log, the metrics page and posts to another Karrot."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import msgspec
import pytest
import structlog

from karrot.burrow.payload import parse_stored
from karrot.event import GroupKey, Kind, LagEvent, PartitionLag, Source
from karrot.eventlog.base import Appended, LogUnavailableError
from karrot.eventlog.event_log import save_outcome
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.intake import Intake
from karrot.reporters.prometheus import build, render
from karrot.watch.poll_loop import IntakeSink, PollOutcome, PostSink
from karrot.watch.verdicts_and_incidents import deleted
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context
from support.servers.background_server import serve_in_thread
from support.servers.scripted_server import http_response, scripted_server

WELL = LagEvent("prod", "g", "OK", 7, 1_800_000_000_000, Source.KAFKA, complete=1.0, partition_count=1)
BAD = WELL._replace(status_text="ERR", incident_id="9b2b0a6c-0000-4000-8000-000000000001")
HEALTH = GroupHealth("g", "Stable", 3, 2, 4, 5, 6, 2, 1, open_transactions=7)
ACCEPTED = b'{"status":"accepted"}'


def outcome(*events: LagEvent, groups: tuple[GroupHealth, ...] = ()) -> PollOutcome:
    return PollOutcome(1_800_000_000_000, 0.25, events, groups)


def no_age() -> int:
    return 0


@pytest.fixture
def sink(log: MemoryEventLog, clock: ManualClock) -> IntakeSink:
    return IntakeSink("prod", Intake(log, clock), log, good_for_ms=300_000)


def scraped(log: MemoryEventLog, **settings: str) -> list[str]:
    collector = build(make_context("prometheus", log=log, settings={"watch": "true", **settings})).collector(log)
    _, pieces = render({"prometheus": collector})
    return b"".join(pieces).decode().splitlines()


def samples(log: MemoryEventLog, *names: str, **settings: str) -> list[str]:
    return [line for line in scraped(log, **settings) if line.startswith(names)]


def test_events_are_in_the_log_with_kafka_as_their_source(sink: IntakeSink, log: MemoryEventLog) -> None:
    sink.send(outcome(WELL, *(BAD._replace(consumer=f"g{number}") for number in range(30))), no_age)
    assert len(log.live()) == 31
    state = log.group(GroupKey("prod", "g"))
    assert state is not None
    assert (state.summary.source, state.summary.total_lag) == (Source.KAFKA, 7)
    assert ("karrot_events_accepted_total", (("source", "kafka"),), 31) in log.counters()
    assert log.heard() == {}  # only Burrow's webhooks set the dead-man metric


def test_a_group_beyond_a_bound_is_refused_and_the_others_are_stored(sink: IntakeSink, log: MemoryEventLog) -> None:
    long = "x" * 2000
    events = (WELL, *(BAD._replace(consumer=f"{long}{number}") for number in range(3)), BAD._replace(consumer="last"))
    health = tuple(msgspec.structs.replace(HEALTH, consumer=name) for name in ("g", long))
    sink.send(outcome(*events, groups=health), no_age)
    assert {state.key.consumer for state in log.live()} == {"g", "last"}
    assert [(each.code, each.source) for each in log.rejects()] == [("invalid_field", Source.KAFKA)] * 3
    assert ("karrot_events_rejected_total", (("code", "invalid_field"),), 3) in log.counters()
    assert samples(log, "karrot_consumer_members") == ['karrot_consumer_members{cluster="prod",consumer="g"} 3']


def test_a_deletion_ends_the_series_at_once(sink: IntakeSink, log: MemoryEventLog) -> None:
    sink.send(outcome(WELL), no_age)
    sink.send(outcome(deleted("prod", "g", WELL.observed_at_ms + 1)), no_age)
    assert log.group(GroupKey("prod", "g")) is None


def test_an_older_poll_changes_nothing(sink: IntakeSink, log: MemoryEventLog, clock: ManualClock) -> None:
    clock.advance(60_000)
    sink.send(outcome(BAD), no_age)
    sink.send(outcome(WELL), lambda: 30_000)
    state = log.group(GroupKey("prod", "g"))
    assert state is not None
    assert state.summary.kind is Kind.INCIDENT


def test_values_that_only_kafka_has_are_on_the_metrics_page(sink: IntakeSink, log: MemoryEventLog) -> None:
    sink.send(outcome(WELL, groups=(HEALTH,)), no_age)
    names = (
        *(f"karrot_consumer_{name}{{" for name in ("group_state", "members", "coordinator_id", "rebalances_total")),
        *(
            f"karrot_consumer_{name}{{"
            for name in ("messages_lost", "retention_margin", "beyond_end_partitions", "uncommitted_partitions")
        ),
        "karrot_consumer_open_transaction_partitions{",
        "karrot_watch_",
    )
    assert samples(log, *names) == [
        'karrot_consumer_group_state{cluster="prod",consumer="g",state="Stable"} 1',
        'karrot_consumer_group_state{cluster="prod",consumer="g",state="Empty"} 0',
        'karrot_consumer_group_state{cluster="prod",consumer="g",state="PreparingRebalance"} 0',
        'karrot_consumer_group_state{cluster="prod",consumer="g",state="CompletingRebalance"} 0',
        'karrot_consumer_group_state{cluster="prod",consumer="g",state="Dead"} 0',
        'karrot_consumer_group_state{cluster="prod",consumer="g",state="Unknown"} 0',
        'karrot_consumer_members{cluster="prod",consumer="g"} 3',
        'karrot_consumer_coordinator_id{cluster="prod",consumer="g"} 2',
        'karrot_consumer_rebalances_total{cluster="prod",consumer="g"} 4',
        'karrot_consumer_messages_lost{cluster="prod",consumer="g"} 5',
        'karrot_consumer_retention_margin{cluster="prod",consumer="g"} 6',
        'karrot_consumer_beyond_end_partitions{cluster="prod",consumer="g"} 2',
        'karrot_consumer_uncommitted_partitions{cluster="prod",consumer="g"} 1',
        'karrot_consumer_open_transaction_partitions{cluster="prod",consumer="g"} 7',
        'karrot_watch_last_poll_timestamp_seconds{cluster="prod"} 1800000000.0',
        'karrot_watch_poll_seconds{cluster="prod"} 0.25',
        'karrot_watch_abandoned_groups{cluster="prod"} 0',
    ]


def test_an_abandoned_group_has_only_what_an_autoscaler_needs_and_is_counted(
    sink: IntakeSink, log: MemoryEventLog
) -> None:
    one = PartitionLag(topic="t", partition=0, status_text="ABANDONED", current_lag=7)
    event = WELL._replace(partitions=(one,), max_lag=one, total_lag=7, partition_count=1)
    sink.send(outcome(event, groups=(msgspec.structs.replace(HEALTH, abandoned=True),)), no_age)
    assert [line.partition("{")[0] for line in scraped(log) if 'consumer="g"' in line] == [
        "karrot_consumer_lag",
        "karrot_consumer_scalable_lag",
        "karrot_consumer_last_event_timestamp_seconds",
    ]
    assert samples(log, "karrot_watch_abandoned_groups") == ['karrot_watch_abandoned_groups{cluster="prod"} 1']


def test_a_cluster_that_never_answered_is_exported_and_one_that_did_keeps_its_time(
    sink: IntakeSink, log: MemoryEventLog, clock: ManualClock
) -> None:
    def polls() -> list[str]:
        return [line for line in scraped(log) if line.startswith("karrot_watch_")]

    assert polls() == ['karrot_watch_last_poll_timestamp_seconds{cluster="prod"} 0.0']
    sink.send(outcome(WELL), no_age)
    answered = polls()
    assert len(answered) == 3
    IntakeSink("prod", Intake(log, clock), log, good_for_ms=300_000).close()
    assert polls() == answered


def test_an_unknown_value_has_no_sample(sink: IntakeSink, log: MemoryEventLog) -> None:
    unknown = GroupHealth("g", "Unknown", None, None, 0, None, None)
    sink.send(outcome(groups=(unknown,)), no_age)
    shown = samples(log, "karrot_consumer_members", "karrot_consumer_messages", "karrot_consumer_retention")
    assert shown == []


def test_an_old_poll_shows_its_time_but_no_group(sink: IntakeSink, log: MemoryEventLog, clock: ManualClock) -> None:
    sink.send(outcome(groups=(HEALTH,)), no_age)
    clock.advance(300_000)
    assert samples(log, "karrot_consumer_members")
    clock.advance(1)
    assert not samples(log, "karrot_consumer_members")
    assert samples(log, "karrot_watch_last_poll")


def test_excluded_groups_are_not_exported_and_without_watch_no_metric_is(sink: IntakeSink, log: MemoryEventLog) -> None:
    sink.send(outcome(groups=(HEALTH,)), no_age)
    assert not samples(log, "karrot_consumer_members", exclude_consumers="^g$")
    assert not [line for line in scraped(log, watch="false") if "karrot_consumer_members" in line]


def test_a_note_of_another_version_is_ignored(log: MemoryEventLog) -> None:
    log.remember("watch", "groups", b"\xc1")
    assert not samples(log, "karrot_consumer_members", "karrot_watch_last")


class Refusing(MemoryEventLog):
    """A log that cannot be written."""

    def append(self, *_: object, **__: object) -> Appended:
        raise LogUnavailableError("disk full")


def test_a_log_that_cannot_be_written_is_logged_once_per_poll(clock: ManualClock) -> None:
    log = Refusing(clock)
    sink = IntakeSink("prod", Intake(log, clock), log, good_for_ms=300_000)
    with structlog.testing.capture_logs() as logs:
        sink.send(outcome(*(WELL._replace(consumer=f"g{number}") for number in range(100))), no_age)
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("some verdicts of a poll could not be stored", "disk full")
    ]
    sink.close()


def test_the_state_of_the_watch_is_that_of_its_last_poll(log: MemoryEventLog, clock: ManualClock) -> None:
    save_outcome(log, "watch", clock, "no broker answers")
    [state] = log.reporters()
    assert (state.name, state.state, state.last_error, state.last_success_ms) == (
        "watch",
        "failing",
        "no broker answers",
        None,
    )
    save_outcome(log, "watch", clock, None)
    [state] = log.reporters()
    assert (state.state, state.last_success_ms) == ("ok", clock.wall)


class Taking(BaseHTTPRequestHandler):
    """A handler that accepts and keeps every post, on reused connections."""

    protocol_version = "HTTP/1.1"
    taken: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, dict(self.headers), body))
        self.send_response(202)
        self.send_header("Content-Length", str(len(ACCEPTED)))
        self.end_headers()
        self.wfile.write(ACCEPTED)

    def log_message(self, *_: object) -> None: ...


def test_an_event_is_posted_in_burrows_form() -> None:
    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Taking)) as port:
        sink = PostSink(f"http://127.0.0.1:{port}/burrow", {"Authorization": "Bearer t"})
        sink.send(outcome(BAD), no_age)
        sink.close()
    [(path, headers, body)] = Taking.taken
    assert path == "/burrow"
    names = ("Content-Type", "Karrot-Source", "Authorization")
    assert [headers[name] for name in names] == ["application/json", "kafka", "Bearer t"]
    assert parse_stored(body, observed_at_ms=BAD.observed_at_ms, source=Source.KAFKA) == BAD


def test_refused_posts_are_logged_when_they_begin_and_end() -> None:
    refused, accepted = http_response(b"", "401 Unauthorized"), http_response(ACCEPTED, "202 Accepted")
    with scripted_server(refused, refused, accepted, accepted) as (url, _), structlog.testing.capture_logs() as logs:
        sink = PostSink(f"{url}/burrow", {})
        for _ in range(4):
            sink.send(outcome(BAD), no_age)
        sink.close()
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("posts are not accepted", "HTTP 401"),
        ("posts are accepted again", None),
    ]


def test_an_unreachable_url_is_logged_and_raises_no_error() -> None:
    with structlog.testing.capture_logs() as logs:
        sink = PostSink("http://127.0.0.1:1/burrow", {})
        sink.send(outcome(BAD, BAD._replace(consumer="h")), no_age)
        sink.close()
    assert [(line["reason"], line["posts"]) for line in logs] == [("no connection: Connection refused", 2)]


def test_a_redirect_is_not_followed() -> None:
    away = http_response(b"", "302 Found", b"Location: http://127.0.0.1:1/\r\n")
    with scripted_server(away) as (url, _), structlog.testing.capture_logs() as logs:
        sink = PostSink(f"{url}/burrow", {})
        sink.send(outcome(BAD), no_age)
        sink.close()
    assert [line["reason"] for line in logs] == ["HTTP 302"]


def test_a_refused_post_is_not_repeated_before_the_next_poll() -> None:
    later = http_response(b"", "503 Service Unavailable", b"Retry-After: 1\r\n")
    with scripted_server(later, http_response(ACCEPTED, "202 Accepted")) as (url, asked):
        sink = PostSink(f"{url}/burrow", {})
        with structlog.testing.capture_logs() as logs:
            sink.send(outcome(BAD), no_age)
            assert len(asked) == 1
            sink.send(outcome(BAD), no_age)
        sink.close()
    assert [line.get("reason") for line in logs] == ["HTTP 503", None]


def test_a_receiver_that_takes_nothing_gets_only_a_few_posts_of_a_poll() -> None:
    with scripted_server(*[[]] * 8) as (url, asked), structlog.testing.capture_logs() as logs:
        sink = PostSink(f"{url}/burrow", {})
        sink.send(outcome(*(BAD._replace(consumer=f"g{number}") for number in range(100))), no_age)
        sink.close()
    assert ([line["posts"] for line in logs], len(asked)) == ([100], 8)
