"""Notifications reach a running Karrot, or the batch fails."""

from dataclasses import replace
from pathlib import Path

import pytest

from karrot.burrow.payload import parse_webhook, to_wire
from karrot.event import Source
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.pipeline.evaluate.verdict_destinations import (
    KEPT_BYTES,
    NotAccepted,
    to_karrot,
)
from support.burrow.recorded_bodies import recorded_body
from support.servers.background_server import serve_in_thread
from support.servers.verdict_receiver import VerdictReceiver
from support.service.free_ports import free_port
from support.service.karrot_service import Service

_EVENT = parse_webhook(recorded_body("karrot_v1.9.5_warn.json"), observed_at_ms=0)


def _sent(*groups: str, body: bytes | None = None) -> list[StoredEvent]:
    events = [_EVENT._replace(consumer=group) for group in groups]
    return [
        StoredEvent("batch-7", seq, 0, summarize(event, 0), body or to_wire(event), event)
        for seq, event in enumerate(events)
    ]


def test_each_notification_is_stored_with_the_source_kafka_and_a_repetition_opens_no_incident(tmp_path: Path) -> None:
    with Service(tmp_path / "data", burrow_token="a token of sixteen") as service:
        sink = to_karrot(f"http://127.0.0.1:{service.port}/", "a token of sixteen", lists_all=True)
        assert [
            *sink(_sent("one", "two")),
            *sink(_sent("one", "two", "three")),
        ] == []  # the driver died before it had noted the delivery
        assert service.metric("karrot_events_accepted_total", source=Source.KAFKA.value) == 5
        assert service.metric("karrot_consumer_incidents_total", consumer="one") == 1
        assert service.metric("karrot_consumer_lag", consumer="three") == _EVENT.total_lag


def test_a_body_that_karrot_refuses_does_not_stop_the_others(tmp_path: Path) -> None:
    large = _sent("large", body=b'{"Event": {"Result": "' + b"x" * 100_000 + b'"}}')
    wrong = _sent("", "wrong", body=b"{}")[1:]
    with Service(tmp_path / "data", burrow_token="a token of sixteen", max_body="50000") as service:
        sink = to_karrot(f"http://127.0.0.1:{service.port}", "a token of sixteen", lists_all=True)
        refused = [*sink([*large, *_sent("one"), *wrong])]
        assert service.metric("karrot_consumer_lag", consumer="one") == _EVENT.total_lag
    assert [(each.key, each.receiver, each.consumer, each.code) for each in refused] == [
        ("batch-7-0", "Karrot", "large", "too_large"),
        ("batch-7-1", "Karrot", "wrong", "unsupported_template"),
    ]
    assert [len(each.body) for each in refused] == [KEPT_BYTES, 2]


def test_a_batch_fails_if_karrot_refuses_the_token_or_does_not_answer(tmp_path: Path) -> None:
    with Service(tmp_path / "data", burrow_token="a token of sixteen") as service:
        sink = to_karrot(f"http://127.0.0.1:{service.port}", "another token of it", lists_all=True)
        with pytest.raises(NotAccepted, match=rf"^Karrot at http://127.0.0.1:{service.port}/burrow answered HTTP 401$"):
            [*sink(_sent("one"))]
    away = f"127.0.0.1:{free_port()}/burrow"
    nobody = to_karrot(f"http://me:hush@{away}", None, lists_all=True, retries=1)
    with pytest.raises(NotAccepted, match=rf"^Karrot at http://\*\*\*@{away} does not answer: NewConnectionError$"):
        [*nobody(_sent("one"))]


def test_the_verdicts_of_a_group_arrive_in_order_and_a_failure_says_which_of_them_arrived() -> None:
    accepted, sent = list[bytes](), _sent(*["one"] * 20, "two")
    sent = [replace(each, body=to_wire(each.event._replace(total_lag=each.seq))) for each in sent]
    receiver = VerdictReceiver(0, lambda group: 202 if group == "one" else 503, accepted)
    with serve_in_thread(receiver) as port, pytest.raises(NotAccepted, match=r"answered HTTP 503$") as raised:
        [*to_karrot(f"http://127.0.0.1:{port}", None, lists_all=True, retries=0)(sent)]
    assert accepted == [each.body for each in sent[:-1]]
    assert (raised.value.seq, raised.value.is_away) == (20, True)
