"""A thread that cannot start, or a lock call that fails once, ends nothing for ever: events are reported later."""

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
from support.service import failing_calls
from support.service.karrot_service import Service
from support.waiting import wait_for

EXPECTED = {
    ("sqlite", "start"): {
        "start karrot-delivery of delivery.start",
        "start karrot-duty-N of delivery._lead",
        "start karrot-stdout of delivery._lead",
        "start karrot-writer of writer.__init__",
        "start quick_N of asgi._call_flask",
        "start scrape_N of asgi._call_flask",
    },
    ("sqlite", "run"): {"run karrot-delivery", "run karrot-duty-N", "run karrot-stdout", "run karrot-writer"},
    ("sqlite", "lock"): {
        "lock commit.lock of store.__init__",
        "lock commit.lock of store._ready",
        "lock leader.lock of store.lead",
    },
    ("sqlite", "unlock"): {
        "unlock commit.lock of store.__init__",
        "unlock commit.lock of store._ready",
        "unlock leader.lock of store.resign",
    },
    ("postgres", "start"): {
        "start karrot-last-known of store.__init__",
        "start karrot-postgres-scheduler of connections.__init__",
        "start karrot-postgres-worker-N of connections.__init__",
    },
    ("postgres", "run"): {
        "run karrot-last-known",
        "run karrot-postgres-scheduler",
        "run karrot-postgres-worker-N",
    },
}
"""Places that each scenario must reach, by store and kind of call. Each place is tested with one store."""

IN_THE_PARENT = {
    "lock dir.lock of data_directory.hold": (
        os.EX_TEMPFAIL,
        "karrot: cannot use the data directory (KARROT_DATA_DIR) {directory}: No locks available",
    ),
    "start ThreadPoolExecutor-N_N of wiring._in_thread": (1, "RuntimeError: can't start new thread"),
}
"""The places before there are workers, with the exit code and the last line."""

NEVER_FAILS = {"run ThreadPoolExecutor-N_N"}
"""The standard library's own thread, whose work handles every error."""


class FaultyService(Service):
    """A service in which calls can fail. All that it accepts is remembered."""

    program = (failing_calls.__file__,)

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, arguments=(), **settings)
        self.faults = directory.with_name("faults")
        self.faults.mkdir()
        self.accepted: list[str] = []
        self._names = count()

    def places(self) -> set[str]:
        return set((self.faults / "places").read_text().splitlines())

    def arm(self, place: str) -> None:
        (self.faults / "failed").unlink(missing_ok=True)
        (self.faults / "armed").write_text(place)

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

    def ended(self) -> int:
        """The exit code, when the service has ended."""
        assert self.process is not None
        return self.process.wait(30)

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
    monkeypatch.setenv("FAILING_CALLS", str(tmp_path / "faults"))
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


@pytest.mark.timeout(600)  # for each place, the workers start again up to three times
@pytest.mark.parametrize(("store", "kind"), EXPECTED, ids=map(" ".join, EXPECTED))
def test_any_call_may_fail_once(store: str, kind: str, server: PostgresServer | None, service: FaultyService) -> None:
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
    for change in changes[1:]:  # these reach every place
        change()
    wait_for(lambda: EXPECTED[store, kind] <= service.places())
    wait_for(service.has_reported_all)
    others = set() if store == "sqlite" else EXPECTED["sqlite", kind]
    reached = service.places() - IN_THE_PARENT.keys() - NEVER_FAILS - others
    for place in sorted(place for place in reached if place.startswith(f"{kind} ")):
        service.arm(place)
        for change in changes:
            if not service.has_failed():
                change()
        wait_for(service.has_failed)
        wait_for(service.accepts)
        wait_for(service.has_reported_all)
        wait_for(service.leader_works)
    assert "Exception in thread" not in service.said.read_text()
    assert service.stop() == 0


@pytest.mark.parametrize("place", IN_THE_PARENT)
def test_a_service_whose_parent_lacks_a_lock_or_a_thread_says_so_and_can_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("FAILING_CALLS", str(tmp_path / "faults"))
    service = FaultyService(tmp_path / "data")
    service.arm(place)
    code, line = IN_THE_PARENT[place]
    assert service.start(wait=False).ended() == code
    assert service.said.read_text().splitlines()[-1] == line.format(directory=tmp_path / "data")
    with service:
        assert service.accepts()


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
