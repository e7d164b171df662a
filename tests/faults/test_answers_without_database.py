"""A real service answers each route in time while its PostgreSQL is stopped or frozen, and recovers by itself."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from support.burrow.recorded_bodies import recorded_body
from support.eventlog.postgres_server import PASSWORD, PostgresServer, running_postgres
from support.service.karrot_service import Answer, Service
from support.waiting import wait_for

GROUP = "cluster=prod-eu&consumer=orders-svc"
PAGES = ("/", "/?q=orders", f"/group?{GROUP}", "/rejects", "/reporters", "/reporters/stdout", "/runbooks")
FROM_MEMORY = ("/api/v1/groups", f"/api/v1/group?{GROUP}", "/api/v1/reporters", "/api/v1/event-log", "/metrics")
NEEDED = ("/api/v1/rejects", "/reporters/stdout", "/readyz")
"""The routes whose answer is 503: their content is only in the database, or they say whether events can be stored."""

AWAY = b"The database of the event log is away"
BODY = recorded_body("karrot_v1.9.5_err_stop.json")
LONGEST_S = 2.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def service(server: PostgresServer, tmp_path: Path) -> Iterator[Service]:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    settings: dict[str, Any] = {
        "event_log": server.url(),
        "event_log_password_file": str(password),
        "reporters": "prometheus,stdout",
        "partition_metrics": "true",
    }
    with Service(tmp_path / "data", **settings) as running:
        yield running


def timed(service: Service, path: str, accept: str = "*/*") -> tuple[Answer, float]:
    began_s = time.monotonic()
    with closing(HTTPConnection("127.0.0.1", service.port, timeout=20)) as connection:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        answer = Answer(response.status, response.read(), dict(response.getheaders()))
    return answer, time.monotonic() - began_s


def each_worker_alone(service: Service) -> Iterator[None]:
    """Stop one of the two workers at a time, so that the other one answers every request."""
    for worker in service.workers():
        os.kill(worker, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(worker, signal.SIGCONT)


@pytest.mark.parametrize(
    ("leave", "come_back"),
    [
        (lambda server: server.stop("fast"), PostgresServer.start),
        (PostgresServer.freeze, PostgresServer.thaw),
    ],
    ids=["stopped", "frozen"],
)
def test_each_route_answers_in_time_from_memory(
    server: PostgresServer,
    service: Service,
    leave: Callable[[PostgresServer], None],
    come_back: Callable[[PostgresServer], None],
) -> None:
    assert service.post(BODY).status == 202
    assert service.post(b"{}").status == 400
    for _ in each_worker_alone(service):  # only a worker that has read has a memory
        assert b"orders-svc" in service.get("/metrics").body
    for path in PAGES:
        assert timed(service, path, "text/html")[0].status == 200
    leave(server)
    try:
        slowest: dict[str, float] = {}

        def answer(path: str, accept: str = "*/*") -> Answer:
            said, seconds = timed(service, path, accept)
            slowest[path] = max(seconds, slowest.get(path, 0.0))
            return said

        for _ in each_worker_alone(service):
            wait_for(lambda: service.get("/readyz").status == 503, 30)
            # A page that was made before is served for up to a second.
            wait_for(lambda: all(AWAY in timed(service, path, "text/html")[0].body for path in PAGES))
        for _ in range(4):
            assert {path: answer(path).status for path in NEEDED} == dict.fromkeys(NEEDED, 503)
            for path in FROM_MEMORY:
                said = answer(path)
                assert (said.status, "Karrot-Memory-Age" in said.headers) == (200, True), path
            assert b'karrot_consumer_lag{cluster="prod-eu",consumer="orders-svc"} 48263' in answer("/metrics").body
            for path in PAGES:
                said = answer(path, "text/html")
                assert (said.status, AWAY in said.body) == (200, True), path
        assert max(slowest.values()) < LONGEST_S, slowest
        assert service.post(BODY).status == 503
    finally:
        come_back(server)
    wait_for(lambda: {service.get("/readyz").status for _ in range(8)} == {200}, 30)  # asked by nothing else
    wait_for(lambda: service.post(BODY).status == 202, 30)
    # Each worker finds out by itself that the database is back.
    wait_for(lambda: b"Karrot cannot read" not in timed(service, f"/group?{GROUP}", "text/html")[0].body, 30)
