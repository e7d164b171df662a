"""Each call of the C library may fail once: no event is lost or doubled, and the service goes on by itself.

As in the tests of SQLite, the n-th call of a kind fails, for n = 1, 2, 3 and so on, until there are fewer calls.
"""

import errno
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.burrow.recorded_bodies import padded_warn_body
from support.eventlog.postgres_server import PASSWORD, running_postgres
from support.reporters.archive_folder import segment_lines, segment_names
from support.service import quick_housekeeping, starts_and_stops
from support.service.failing_calls import FailingCalls
from support.service.karrot_service import Answer, Service
from support.waiting import wait_for

if TYPE_CHECKING:
    from karrot.reporters.archive.segment_store import SegmentName

Case = tuple[str, str, int]
"""A scenario, a kind of call and its error."""


class FaultyService(Service):
    """A service in which a call can fail, with all the events that it accepted, printed and archived."""

    program = (quick_housekeeping.__file__,)

    def __init__(self, directory: Path, **settings: str) -> None:
        self.has_archive = "event_log" not in settings
        settings["reporters"] = "prometheus,stdout,archive" if self.has_archive else "prometheus,stdout"
        super().__init__(directory, arguments=(), max_log_bytes="1MiB", **settings)
        self.archive = directory / "archive"
        self.accepted: list[str] = []
        self.printed: dict[str, set[str]] = defaultdict(set)
        self.archived: dict[SegmentName, list[str]] = {}
        self._names = map("group-{}.".format, count())
        self._removed: set[SegmentName] = set()
        self._read_bytes = 0

    def accepts(self) -> bool:
        """Whether an event of a new group is accepted."""
        name = next(self._names)
        answer = self.answer("POST", "/burrow", padded_warn_body(name, 10_000))
        if answer is None or answer.status != 202:
            return False
        self.accepted.append(name)
        return True

    def answer(self, method: str, path: str, body: bytes | None = None) -> Answer | None:
        """The answer, which may be 503. ``None`` if a failed call or the end of a worker closed the connection."""
        with suppress(OSError, HTTPException):
            answer = self.request(method, path, body)
            assert answer.status in {200, 202, 503}, answer
            return answer
        return None

    def has_reported_all(self) -> bool:
        with self.said.open("rb") as said:
            said.seek(self._read_bytes)
            *lines, _unfinished = said.read().split(b"\n")
        self._read_bytes += sum(len(line) + 1 for line in lines)
        for found in filter(None, (re.search(rb'"event_id":"(.+?)".*"(group-\d+\.)"', line) for line in lines)):
            self.printed[found[2].decode()].add(found[1].decode())
        names = set(segment_names(self.archive)) | self._removed
        for name in names - set(self.archived):
            with suppress(FileNotFoundError):  # after a failed sync, the archive deletes the segment again
                self.archived[name] = [each.consumer for each in segment_lines((self.archive / name.path).read_bytes())]
        for name in set(self.archived) - names:
            del self.archived[name]
        archived = set(chain(*self.archived.values()))
        return all(self.printed[name] and (name in archived or not self.has_archive) for name in self.accepted)

    def assert_nothing_is_doubled(self) -> None:
        assert {name: ids for name, ids in self.printed.items() if len(ids) > 1} == {}
        assert {name: many for name, many in Counter(chain(*self.archived.values())).items() if many > 1} == {}

    def leader(self) -> int:
        """The process id of the leader. 0 if no worker leads. With PostgreSQL the oldest worker, which mostly leads."""
        if not self.has_archive:
            return self.workers()[0]
        inode = (self.directory / "leader.lock").stat().st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return next((int(lock[4]) for lock in locks if "FLOCK" in lock and lock[5].endswith(f":{inode}")), 0)

    def leads(self) -> bool:
        with suppress(OSError, HTTPException):
            age = self.metric("karrot_log_housekeeping_age_seconds")
            return age is not None and age < 2
        return False

    def work(self) -> None:
        """Take, show, print and archive three events, unless a call fails."""
        for _ in range(3):
            self.accepts()
        self.answer("GET", "/metrics")
        self.answer("GET", "/api/v1/groups")
        with suppress(AssertionError):
            wait_for(self.has_reported_all, 3)

    def change_the_leader(self) -> None:
        """End the leader. Another worker leads, and a new worker starts."""
        pid = self.leader()
        if pid:
            os.kill(pid, signal.SIGTERM)
            wait_for(lambda: pid not in (new := self.workers()) and len(new) == int(self.settings["workers"]))
        self.work()

    def has_recovered(self) -> None:
        """Wait until there are both workers and all is as before the failure."""
        workers = int(self.settings["workers"])
        wait_for(lambda: len(self.workers()) == workers)
        for condition in (self.accepts, self.ready, self.leads, self.has_reported_all):
            wait_for(condition)
        self.assert_nothing_is_doubled()
        for name in sorted(set(self.archived) - self._removed, key=lambda each: each.last)[:-5]:
            (self.archive / name.path).unlink()  # each leader lists the archive
            self._removed.add(name)


def cases(scenario: str, **errors: str) -> list[Case]:
    return [(scenario, kind, getattr(errno, error)) for kind, found in errors.items() for error in found.split()]


SCENARIOS = {"work": FaultyService.work, "change": FaultyService.change_the_leader}
ON_FILES = {"open": "EMFILE EIO", "write": "EIO ENOSPC", "truncate": "EIO", "stat": "EIO", "lock": "ENOLCK"}
IN_SERVICE = [
    *cases("work", **ON_FILES, read="EIO", sync="EIO ENOSPC", rename="EIO", flock="ENOLCK"),
    *cases("work", thread="EAGAIN", accept="EMFILE ECONNABORTED"),
    *cases("change", **ON_FILES, read="EIO", sync="EIO", list="EMFILE", flock="ENOLCK", map="ENOMEM"),
    *cases("change", thread="EAGAIN", fork="EAGAIN", descriptor="EMFILE"),
]
AT_A_START = [
    *cases("start", **ON_FILES, read="EIO", sync="EIO", list="EMFILE", mkdir="ENOSPC"),
    *cases("start", flock="ENOLCK", map="ENOMEM", thread="EAGAIN"),
]
ON_POSTGRESQL = [
    *cases("work", database="ECONNRESET"),
    *cases("change", database="ECONNRESET ETIMEDOUT", thread="EAGAIN", fork="EAGAIN"),
]
SAMPLES = {
    **dict.fromkeys(cases("change", open="EIO", fork="EAGAIN"), 1),
    **dict.fromkeys(cases("work", read="EIO"), 7),
}
"""What is tested without ``deep``: some cases, and only each n-th of their calls."""


def rows(cases: Sequence[Case], samples: Mapping[Case, int]) -> list[Any]:
    """The samples, and with ``deep`` every call of each case."""
    sampled = [pytest.param(case, every, id=f"{_named(case)}, a sample") for case, every in samples.items()]
    return sampled + [pytest.param(case, 1, id=_named(case), marks=pytest.mark.deep) for case in cases]


def _named(case: Case) -> str:
    scenario, kind, error = case
    return f"{scenario} {kind} {errno.errorcode[error]}"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    return failing_calls(tmp_path, monkeypatch)


def failing_calls(directory: Path, monkeypatch: pytest.MonkeyPatch, database_port: int = 0) -> FailingCalls:
    calls = FailingCalls(directory, database_port)
    for name, value in calls.environment.items():
        monkeypatch.setenv(name, value)
    return calls


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("case", "every"), rows(IN_SERVICE, SAMPLES))
def test_any_call_may_fail_once(calls: FailingCalls, tmp_path: Path, case: Case, every: int) -> None:
    # A worker that could not read checks the whole log before its next commit. That may be after the next failure.
    workers = "1" if "read" in case else "2"
    with FaultyService(tmp_path / "data", workers=workers) as service:
        fail_each(calls, service, case, every)
    assert not list(service.directory.glob("*.corrupt-*"))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("case", "every"), rows(ON_POSTGRESQL, {}))
def test_any_call_may_fail_once_on_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, every: int
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    with running_postgres() as server:
        calls = failing_calls(tmp_path, monkeypatch, server.port)
        log = {"event_log": server.url(), "event_log_password_file": str(tmp_path / "password")}
        with FaultyService(tmp_path / "data", workers="2", **log) as service:
            fail_each(calls, service, case, every)


def fail_each(calls: FailingCalls, service: FaultyService, case: Case, every: int) -> None:
    """Let the calls fail, one in each round, until a round has fewer calls."""
    scenario, kind, error = case
    service.has_recovered()
    for number in count(1, every):
        calls.arm(kind, number, error)
        SCENARIOS[scenario](service)
        calls.disarm()
        service.has_recovered()
        if not calls.failed():
            break
    assert number > 1
    assert "Exception in thread" not in service.said.read_text()
    assert service.stop() == 0
    assert service.has_reported_all()
    service.assert_nothing_is_doubled()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("case", "every"), rows(AT_A_START, dict.fromkeys(cases("start", read="EIO"), 9)))
def test_any_call_may_fail_once_at_a_start_and_a_stop(
    calls: FailingCalls, tmp_path: Path, case: Case, every: int
) -> None:
    _, kind, error = case
    program = [sys.executable, starts_and_stops.__file__, str(tmp_path / "data")]
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=path) as process:
        groups, answers = process.stdin, process.stdout
        assert groups is not None
        assert answers is not None

        def start_and_stop(group: str) -> list[str]:
            groups.write(f"{group}\n")
            groups.flush()
            said = list[str]()
            while (line := answers.readline()) != "ended\n":
                assert line, "the program ended"
                said.append(line.strip())
            return said

        start_and_stop("first")
        for number in count(1, every):
            calls.arm(kind, number, error)
            said = start_and_stop(f"faulty-{number}")
            assert "failed" not in said, calls.failed()
            calls.disarm()
            accepted, stored, stopped = start_and_stop(f"good-{number}")
            assert (accepted, stopped) == ("accepted", "stopped"), calls.failed()
            counted = Counter(stored.split())
            assert set(counted.values()) == {1}
            assert counted[f"faulty-{number}"] == 1 or "accepted" not in said
            if not calls.failed():
                break
        groups.close()
    assert number > 1
    assert not list((tmp_path / "data").glob("*.corrupt-*"))


@pytest.mark.parametrize(
    ("case", "code", "line"),
    [
        (
            *(("start", "flock", errno.ENOLCK), os.EX_TEMPFAIL),
            "karrot: cannot use the data directory (KARROT_DATA_DIR) {directory}: No locks available",
        ),
        (("start", "thread", errno.EAGAIN), 1, "RuntimeError: can't start new thread"),
    ],
    ids=["lock", "thread"],
)
def test_a_parent_without_a_lock_or_a_thread_says_so_and_can_start_again(
    calls: FailingCalls, tmp_path: Path, case: Case, code: int, line: str
) -> None:
    _, kind, error = case
    service = FaultyService(tmp_path / "data")
    calls.arm(kind, 1, error)
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(60) == code
    assert service.said.read_text().splitlines()[-1] == line.format(directory=tmp_path / "data")
    with service:
        assert service.accepts()
