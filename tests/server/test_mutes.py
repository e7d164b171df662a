"""Mutes over real HTTP: the bodies are read, and all workers see them, also after a restart."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from karrot.burrow.payload import to_wire
from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import recorded_body
from support.service.karrot_service import Service
from support.waiting import wait_for

WISH = {"cluster": "prod-eu", "pattern": "orders-*", "reason": "a planned migration", "for": "2h"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "data", workers="2", body_timeout="1s") as service:
        assert service.post(recorded_body("karrot_v1.9.5_err_stop.json")).status == 202
        yield service


def is_muted(service: Service) -> list[float | None]:
    """Ask the workers several times, each on a new connection."""
    return [service.metric("karrot_consumer_muted", consumer="orders-svc") for _ in range(6)]


def test_all_workers_see_a_mute_until_it_ends_also_after_a_restart(service: Service) -> None:
    assert is_muted(service) == [None] * 6
    begun = service.request("POST", "/api/v1/mutes", json.dumps(WISH).encode())
    assert (begun.status, begun.json["groups"]) == (200, 1)
    assert is_muted(service) == [1] * 6
    assert service.stop() == 0
    service.start()
    assert is_muted(service) == [1] * 6
    known = begun.json["mutes"][0]["id"]
    assert service.request("DELETE", f"/api/v1/mutes?id={known}").status == 200
    assert is_muted(service) == [None] * 6
    assert f'"id": "{known}"' in next(line for line in service.said.read_text().splitlines() if "mute_ended" in line)


def test_a_group_that_is_deleted_stays_muted_in_all_workers_and_after_a_restart(service: Service) -> None:
    assert service.request("POST", "/api/v1/mutes", json.dumps(WISH).encode()).status == 200
    deleted = make_event(cluster="prod-eu", consumer="orders-svc", status_text="NOTFOUND", incident_id=None)
    assert service.post(to_wire(deleted)).status == 202
    wait_for(lambda: service.metric("karrot_consumer_status_code", consumer="orders-svc") is None)
    assert is_muted(service) == [1] * 6
    assert service.stop() == 0
    service.start()
    assert is_muted(service) == [1] * 6


def test_the_leader_ends_a_mute_by_the_clock(service: Service) -> None:
    assert service.request("POST", "/api/v1/mutes", json.dumps(WISH | {"for": "1s"}).encode()).status == 200
    wait_for(lambda: service.get("/api/v1/mutes").json["mutes"] == [], 30)
    wait_for(lambda: "mute_ended" in service.said.read_text())
    assert is_muted(service) == [None] * 6


def test_a_form_that_arrives_in_pieces_is_read(service: Service) -> None:
    fields = b"reason=a+planned+migration&for=1h"
    head = b"POST /mute?cluster=prod-eu&consumer=orders-svc HTTP/1.1\r\nHost: karrot\r\nContent-Length: %d\r\n" % len(
        fields
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as client:
        client.sendall(head + b"Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(fields[:10])
        client.sendall(fields[10:])
        assert client.recv(10_000).startswith(b"HTTP/1.1 303 ")
    assert is_muted(service) == [1] * 6


@pytest.mark.parametrize("sent", [10, 0], ids=["a part", "nothing"])
def test_an_incomplete_or_too_large_body_changes_nothing(service: Service, sent: int) -> None:
    body = json.dumps(WISH).encode()
    head = b"POST /api/v1/mutes HTTP/1.1\r\nHost: karrot\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as client:
        client.sendall(head + body[:sent])
        assert client.recv(10_000).startswith(b"HTTP/1.1 400 ")
    large = json.dumps(WISH | {"note": "x" * (16 << 10)}).encode()
    assert service.request("POST", "/api/v1/mutes", large).json["code"] == "invalid_field"
    assert service.get("/api/v1/mutes").json["mutes"] == []
