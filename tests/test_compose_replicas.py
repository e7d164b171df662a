"""Two Karrots behind HAProxy: the file for docker compose is valid, and HAProxy's configuration loses no event.

HAProxy, PostgreSQL and both Karrots are real, without containers.
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml

from karrot.settings.options import OPTIONS
from support.burrow.recorded_bodies import warn_body
from support.eventlog.postgres_server import PASSWORD, PostgresServer, running_postgres
from support.service.free_ports import free_port
from support.service.karrot_service import Answer, Service
from support.waiting import wait_for

DIRECTORY = Path(__file__).resolve().parents[1] / "examples" / "compose"
FILE = DIRECTORY / "replicas.yaml"
CONFIGURATION = DIRECTORY / "haproxy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
BURROWS_PATIENCE_S = 5

needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="needs HAProxy (Debian: apt-get install haproxy)")


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return read


def test_two_karrots_differ_only_in_their_names_and_keep_nothing_on_disk(described: dict[str, Any]) -> None:
    first, second = (dict(described["services"][f"karrot-{number}"]) for number in (1, 2))
    assert (first.pop("hostname"), second.pop("hostname")) == ("karrot-1", "karrot-2")
    assert first == second
    assert first["environment"].keys() <= {option.name for option in OPTIONS}
    assert (first["read_only"], first["cap_drop"], "volumes" in first) == (True, ["ALL"], False)


def test_haproxy_and_both_karrots_find_each_other_and_the_database(described: dict[str, Any]) -> None:
    services = described["services"]
    karrot, postgres, proxy = services["karrot-1"], services["postgres"], services["haproxy"]
    database = postgres["environment"]
    url = f"postgresql://{database['POSTGRES_USER']}@postgres/{database['POSTGRES_DB']}"
    assert karrot["environment"]["KARROT_EVENT_LOG"] == url
    [secret] = karrot["secrets"]
    assert karrot["environment"]["KARROT_EVENT_LOG_PASSWORD_FILE"] == f"/run/secrets/{secret}"
    assert (postgres["secrets"], database["POSTGRES_PASSWORD_FILE"]) == ([secret], f"/run/secrets/{secret}")
    assert {proxy["environment"][f"KARROT_{number}"] for number in (1, 2)} == {"karrot-1:5000", "karrot-2:5000"}
    read = set(re.findall(r'"\$\{(\w+)\}"', CONFIGURATION.read_text()))
    assert read == set(proxy["environment"]) == {"LISTEN", "KARROT_1", "KARROT_2"}
    assert services["fake-burrow"]["command"] == [f"http://haproxy{proxy['environment']['LISTEN']}/burrow"]


class Replicas:
    """Two Karrots with one database, and a running HAProxy before them."""

    def __init__(self, database: PostgresServer, karrots: tuple[Service, Service], port: int, log: Path) -> None:
        self.database = database
        self.karrots = karrots
        self._port = port
        self._log = log

    def request(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """Ask HAProxy, as patiently as Burrow does."""
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=BURROWS_PATIENCE_S)) as connection:
            connection.request(method, path, body)
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers)

    def post(self, consumer: str) -> int:
        return self.request("POST", "/burrow", warn_body(consumer)).status

    def post_until(self, stop: threading.Event, names: Iterator[int]) -> dict[str, int]:
        """Post an event of another group after each answer, and return each group's answer."""
        answers: dict[str, int] = {}
        while not stop.is_set():
            name = f"group-{next(names)}"
            answers[name] = self.post(name)
        return answers

    def consumers(self) -> set[str]:
        return set(
            re.findall(r'karrot_consumer_lag\{.*consumer="(.*?)"', self.request("GET", "/metrics").body.decode())
        )

    def stored_by(self, number: int) -> int:
        """Return how many events one Karrot has answered with 202, by HAProxy's log."""
        return len(re.findall(rf" events/karrot-{number} \S+ 202 ", self._log.read_text()))


@contextmanager
def running_haproxy(karrots: tuple[Service, Service], directory: Path) -> Iterator[int]:
    """Run HAProxy with the configuration of the example, and yield its port when it can reach both Karrots."""
    port = free_port()
    addresses = {f"KARROT_{number}": f"127.0.0.1:{each.port}" for number, each in enumerate(karrots, 1)}
    environment = os.environ | addresses | {"LISTEN": f"127.0.0.1:{port}"}
    with (directory / "haproxy.log").open("wb") as log:
        command = [str(HAPROXY), "-db", "-f", str(CONFIGURATION)]
        with subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
            try:
                wait_for(lambda: process.poll() is not None or _answers(port))
                assert process.poll() is None, (directory / "haproxy.log").read_text()
                yield port
            finally:
                process.kill()


def _answers(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=BURROWS_PATIENCE_S)) as connection:
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Each test leaves all servers running."""
    directory = tmp_path_factory.mktemp("replicas")
    password = directory / "password"
    password.write_text(PASSWORD)
    with ExitStack() as running:
        database = running.enter_context(running_postgres())
        first, second = (
            running.enter_context(
                Service(
                    directory / f"karrot-{number}",
                    workers="1",
                    event_log=database.url(),
                    event_log_password_file=str(password),
                )
            )
            for number in (1, 2)
        )
        port = running.enter_context(running_haproxy((first, second), directory))
        yield Replicas(database, (first, second), port, directory / "haproxy.log")


@needs_haproxy
def test_every_event_is_stored_while_one_karrot_after_the_other_is_killed(replicas: Replicas) -> None:
    stop, names = threading.Event(), itertools.count()
    with ThreadPoolExecutor(2) as pool:
        posters = [pool.submit(replicas.post_until, stop, names) for _ in range(2)]
        try:
            for number, karrot in enumerate(replicas.karrots, 1):
                _await_more_from(replicas, number)
                karrot.kill()
                karrot.start()
                _await_more_from(replicas, number)
        finally:
            stop.set()
    answers = {name: status for each in posters for name, status in each.result().items()}
    assert set(answers.values()) == {202}
    wait_for(lambda: answers.keys() <= replicas.consumers())


def _await_more_from(replicas: Replicas, number: int) -> None:
    before = replicas.stored_by(number)
    wait_for(lambda: replicas.stored_by(number) > before + 10)


@needs_haproxy
def test_a_frozen_karrot_costs_no_event_and_no_more_time_than_burrow_has(replicas: Replicas) -> None:
    frozen, _ = replicas.karrots
    os.killpg(frozen.pid, signal.SIGSTOP)
    try:
        assert [replicas.post(f"group-{number}") for number in range(4)] == [202] * 4
    finally:
        os.killpg(frozen.pid, signal.SIGCONT)
