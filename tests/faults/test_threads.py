"""A thread that ends because it failed ends nothing for ever: events are reported later."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPException
from itertools import count
from pathlib import Path

import pytest

from karrot.eventlog.locks import FileLock
from support.burrow.recorded_bodies import warn_body
from support.eventlog.postgres_server import PASSWORD, PostgresServer, running_postgres
from support.service import ending_threads
from support.service.karrot_service import Service
from support.waiting import wait_for

EXPECTED = {
    "sqlite": {"karrot-delivery", "karrot-duty-N", "karrot-stdout", "karrot-writer"},
    "postgres": {"karrot-last-known", "karrot-postgres-scheduler", "karrot-postgres-worker-N"},
}
"""Threads that each store must start. Each thread is tested with one store."""


class FaultyService(Service):
    """A service in which a thread can end. All that it accepts is remembered."""

    program = (ending_threads.__file__,)

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, arguments=(), **settings)
        self.faults = directory.with_name("faults")
        self.faults.mkdir()
        self.accepted: list[str] = []
        self._names = count()

    def started(self) -> set[str]:
        return {name for name in (self.faults / "started").read_text().splitlines() if name.startswith("karrot-")}

    def arm(self, thread: str) -> None:
        (self.faults / "failed").unlink(missing_ok=True)
        (self.faults / "armed").write_text(thread)

    def has_failed(self) -> bool:
        return (self.faults / "failed").exists()

    def accepts(self) -> bool:
        """Whether an event of a new group is accepted. A worker that ends may close the connection."""
        name = f"group-{next(self._names)}."
        with suppress(OSError, HTTPException):
            if self.post(warn_body(name)).status == 202:
                self.accepted.append(name)
                return True
        return False

    def answers(self) -> bool:
        with suppress(OSError, HTTPException):
            return self.get("/healthz").status == self.get("/metrics").status == 200
        return False

    def change_workers(self, number: signal.Signals) -> None:
        """End both workers, and wait until there are new ones and an event is stored."""
        old = self.workers()
        for pid in old:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        wait_for(lambda: len(new := self.workers()) == 2 and not set(old) & set(new))
        wait_for(self.accepts)
        wait_for(self.answers)

    def has_reported_all(self) -> bool:
        said = self.said.read_text()
        return all(name in said for name in self.accepted)

    def leader_works(self) -> bool:
        with suppress(OSError, HTTPException):
            age = self.metric("karrot_log_housekeeping_age_seconds")
            return age is not None and age < 5
        return False


@pytest.fixture
def server(store: str) -> Iterator[PostgresServer | None]:
    if store == "sqlite":
        yield None
        return
    with running_postgres() as running:
        yield running


@pytest.fixture
def service(server: PostgresServer | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyService]:
    monkeypatch.setenv("ENDING_THREADS", str(tmp_path / "faults"))
    settings = {"reporters": "prometheus,stdout,archive"}
    if server is not None:
        (tmp_path / "password").write_text(PASSWORD)
        settings = {
            "reporters": "prometheus,stdout",
            "event_log": server.url(),
            "event_log_password_file": str(tmp_path / "password"),
        }
    with FaultyService(tmp_path / "data", **settings) as running:
        yield running


@pytest.mark.timeout(600)  # for each thread, the workers start again up to three times
@pytest.mark.parametrize("store", EXPECTED)
def test_any_thread_may_end_once(store: str, server: PostgresServer | None, service: FaultyService) -> None:
    def restart_the_database() -> None:
        if server is not None:
            server.stop("fast")
            wait_for(lambda: not service.accepts())
            server.start()
            wait_for(service.accepts)

    changes = (
        partial(service.change_workers, signal.SIGKILL),
        partial(service.change_workers, signal.SIGTERM),
        restart_the_database,
    )
    for change in changes[1:]:  # these start every thread
        change()
    wait_for(lambda: EXPECTED[store] <= service.started())
    wait_for(service.has_reported_all)
    for thread in sorted(service.started() - (set() if store == "sqlite" else EXPECTED["sqlite"])):
        service.arm(thread)
        for change in changes:
            if not service.has_failed():
                change()
        wait_for(service.has_failed)
        wait_for(service.accepts)
        wait_for(service.has_reported_all)
        wait_for(service.leader_works)
    assert "Exception in thread" not in service.said.read_text()
    assert service.stop() == 0


def test_workers_are_not_ready_while_a_process_that_hangs_holds_the_lock_of_the_commits(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        wait_for(lambda: len(service.workers()) == 2)
        assert service.post(warn_body("before")).status == 202
        with closing(FileLock(tmp_path / "data" / "commit.lock")) as held:
            held.acquire()

            def no_worker_is_ready() -> bool:
                assert service.post(warn_body("during")).status == 503
                return [service.get("/readyz").status for _ in range(8)] == [503] * 8

            wait_for(no_worker_is_ready)
            assert {service.metric("karrot_log_writable") for _ in range(8)} == {0}
            assert service.metric("karrot_consumer_lag", consumer="before") == 11_020
        wait_for(lambda: all(service.ready() for _ in range(8)))
        assert service.metric("karrot_log_writable") == 1
        assert service.post(warn_body("after")).status == 202
