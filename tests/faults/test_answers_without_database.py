"""A real service answers each route while its PostgreSQL is stopped or frozen, and recovers by itself."""

import os
import signal
from collections.abc import Callable, Iterator
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


def page(service: Service, path: str) -> Answer:
    return service.get(path, {"Accept": "text/html"})


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
def test_each_route_answers_from_memory(
    server: PostgresServer,
    service: Service,
    leave: Callable[[PostgresServer], None],
    come_back: Callable[[PostgresServer], None],
) -> None:
    assert service.post(BODY).status == 202
    assert service.post(b"{}").status == 400

    def has_sent() -> bool:
        """Whether the reporter has sent an event. Before that, it has no last event to read."""
        return service.get("/reporters/stdout").json["reporters"][0]["stdout"]["last_event"] is not None

    wait_for(has_sent)  # only the leader sends, and while it is stopped, the other one waits to lead
    for _ in each_worker_alone(service):  # only a worker that has read has a memory
        # The worker that is stopped may be in a commit: the other one then waits until it can take the lock.
        wait_for(lambda: b"orders-svc" in service.get("/metrics").body)
        wait_for(has_sent)
    for path in PAGES:
        assert page(service, path).status == 200
    leave(server)
    try:
        for _ in each_worker_alone(service):
            wait_for(lambda: service.get("/readyz").status == 503)
            # A page that was made before is served for up to a second.
            wait_for(lambda: all(AWAY in page(service, path).body for path in PAGES))
        for _ in range(4):  # the database is away until all have answered
            assert {path: service.get(path).status for path in NEEDED} == dict.fromkeys(NEEDED, 503)
            for path in FROM_MEMORY:
                said = service.get(path)
                assert (said.status, "Karrot-Memory-Age" in said.headers) == (200, True), path
            assert b'karrot_consumer_lag{cluster="prod-eu",consumer="orders-svc"} 48263' in service.get("/metrics").body
            for path in PAGES:
                said = page(service, path)
                assert (said.status, AWAY in said.body) == (200, True), path
        assert service.post(BODY).status == 503
    finally:
        come_back(server)
    wait_for(lambda: {service.get("/readyz").status for _ in range(8)} == {200})  # asked by nothing else
    wait_for(lambda: service.post(BODY).status == 202)
    # Each worker finds out by itself that the database is back.
    wait_for(lambda: b"Karrot cannot read" not in page(service, f"/group?{GROUP}").body)
