"""Replays the recorded requests of a real Burrow with the same connection, headers and bytes, and scaled pauses.

Pauses are a twentieth of the recorded ones, with two exceptions. The pause after the first WARN has its recorded
length, so that a late scrape still sees it. Between ERR and the close the connection is idle as long as Burrow left it
idle. The bodies do not depend on the pauses, because a webhook gets the time of its receipt.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPConnection
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.stack.stack import Stack
from karrot.burrow.payload import parse_rest, parse_webhook
from karrot.event import LagEvent
from support.burrow.recorded_bodies import recorded_requests, recorded_rest_answer
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

GROUP = "skewed-consumer-group"
FASTER = 20
AS_IT_WAS = {2, 6}  # the requests after the first WARN and the only ERR
WARN, ERR, OK = 2, 3, 1


class Seen(NamedTuple):
    """The values on `/metrics` right after an answer."""

    status: float | None
    lag: float | None
    began: float | None


def replayed(service: Service) -> Iterator[tuple[LagEvent, int, Seen]]:
    """Send the conversation over one connection; return each request, its answer and the metrics after it."""
    connection = HTTPConnection("127.0.0.1", service.port, timeout=20)
    connection.connect()
    connection.auto_open = 0  # it is an error if Karrot closes the connection
    before: float | None = None
    for number, request in enumerate(recorded_requests()):
        pause = 0 if before is None else request["at"] - before
        time.sleep(pause if number in AS_IT_WAS else pause / FASTER)
        before = request["at"]
        yield sent(connection, request), connection_status(connection), seen(service)
    connection.close()


def sent(connection: HTTPConnection, request: dict[str, Any]) -> LagEvent:
    connection.putrequest(request["method"], request["path"], skip_host=True, skip_accept_encoding=True)
    for name, value in request["headers"]:
        connection.putheader(name, value)
    body = request["body"].encode()
    connection.endheaders(body)
    return parse_webhook(body, observed_at_ms=int(time.time() * 1000))


def connection_status(connection: HTTPConnection) -> int:
    response = connection.getresponse()
    response.read()
    return response.status


def seen(service: Service) -> Seen:
    names = ("status_code", "lag", "incident_start_timestamp_seconds")
    return Seen(*(service.metric(f"karrot_consumer_{name}", consumer=GROUP) for name in names))


def test_the_states_and_the_incident_match_the_real_burrow(one_broker: Stack, tmp_path: Path) -> None:
    prometheus = one_broker.prometheus
    with Service(tmp_path / "data") as service, prometheus.scraping("replay", service.port):
        started = time.time()
        rows = list(replayed(service))
        incidents = prometheus.number(f'karrot_consumer_incidents_total{{consumer="{GROUP}"}}')
        scraped = [value for _, value in prometheus.samples(f'karrot_consumer_status_code{{consumer="{GROUP}"}}', "5m")]
        events = service.get(f"/api/v1/group?cluster=stack&consumer={GROUP}&limit=100").json["events"]
        accepted = service.metric("karrot_events_accepted_total", source="webhook")

    assert [status for _, status, _ in rows] == [202] * 40
    assert accepted == 40
    told = [(event, found) for event, _, found in rows if event.consumer == GROUP]
    assert all((found.status, found.lag) == (event.status, event.total_lag) for event, found in told)
    assert [found.status for _, found in told[:5]] == [WARN, WARN, ERR, OK, OK]

    start = told[0][0].incident_start
    assert start is not None
    assert [found.began for _, found in told[:3]] == pytest.approx([start.timestamp()] * 3, abs=0.001)
    assert {found.began for _, found in told[3:]} == {None}
    assert incidents == 1
    assert [value for value, _ in groupby(scraped)] == [WARN, ERR, OK]
    assert [(each["kind"], each["status"]) for each in reversed(events)][:5] == [
        ("incident", "WARN"),
        ("incident", "WARN"),
        ("incident", "ERR"),
        ("close", "OK"),
        ("observation", "OK"),
    ]
    assert len({each["incident_id"] for each in events}) == 2  # the id of the incident, and None
    dated = [datetime.fromisoformat(each["observed_at"]).timestamp() for each in events]
    assert started < min(dated) <= max(dated) < time.time()


@pytest.mark.parametrize(("moment", "number"), [("warn", 1), ("2", 9)], ids=["a group in WARN", "a group in OK"])
def test_the_webhook_gives_the_same_values_as_burrows_rest_api_in_that_state(moment: str, number: int) -> None:
    body = recorded_requests()[number]["body"].encode()
    webhook = parse_webhook(body, observed_at_ms=0)
    rest = parse_rest(recorded_rest_answer(f"status-{moment}"), observed_at_ms=0)
    assert summary(webhook) == summary(rest)


def summary(event: LagEvent) -> tuple[Any, ...]:
    """Return the values that do not depend on the time."""
    partitions = sorted((each.topic, each.partition, each.status_text) for each in event.partitions)
    return event.cluster, event.consumer, event.status_text, event.complete, event.partition_count, partitions
