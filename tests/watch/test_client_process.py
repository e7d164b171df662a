"""The Kafka client runs in a child process: its death is a failed poll, and the next poll has another child."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from karrot.event import FirstUnread
from karrot.settings.types import Secret
from karrot.watch.client_process import ClientProcess
from karrot.watch.cluster_interface import Cluster, ClusterError, NotConnected, connect
from karrot.watch.poll_loop import PollOutcome, Watcher, run
from support.child_process import runs
from support.kafka.clusters_in_child import PLACE, aborting, cluster, never, unreachable, without_token, wrong
from support.manual_clock import ManualClock
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(60)

Opened = Callable[[Callable[[], Cluster]], ClientProcess]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return a function that makes a cluster in a child process; it ends with the test."""
    with ExitStack() as stack:
        yield lambda open_cluster: stack.enter_context(closing(ClientProcess(open_cluster)))


def pid_of(kafka: ClientProcess) -> int:
    assert kafka._child is not None
    return kafka._child.process.pid


class Held:
    """A sink that keeps every outcome."""

    def __init__(self) -> None:
        self.outcomes: list[PollOutcome] = []

    def send(self, outcome: PollOutcome, age_ms: object) -> None:
        del age_ms
        self.outcomes.append(outcome)

    def close(self) -> None: ...


def test_every_answer_of_the_cluster_passes_through_the_pipe(opened: Opened) -> None:
    kafka, same = opened(cluster), cluster()
    assert kafka.groups() == same.groups()
    assert kafka.describe(["billing", "gone"]) == same.describe(["billing", "gone"])
    assert kafka.committed(["billing", "locked"]) == same.committed(["billing", "locked"])
    assert kafka.log_ends({PLACE}) == {PLACE: 12}
    assert kafka.log_starts({PLACE}) == {PLACE: 0}
    assert kafka.first_unread({PLACE: 12}) == {PLACE: FirstUnread(12)}


def test_an_error_of_the_cluster_keeps_its_reason_and_the_child_lives(opened: Opened) -> None:
    kafka = opened(unreachable)
    for _ in range(2):
        with pytest.raises(ClusterError, match="Connection refused") as raised:
            kafka.groups()
        assert raised.value.reason == "_transport"
        first = pid_of(kafka)
    assert pid_of(kafka) == first


def test_a_child_that_aborts_is_counted_and_logged_once_and_the_next_poll_has_its_reading(opened: Opened) -> None:
    counted: list[tuple[str, int, str]] = []
    troubles: list[str | None] = []
    kafka, held = opened(cluster), Held()
    watcher = Watcher(
        "c",
        kafka,
        ManualClock(),
        held.send,
        None,
        count=lambda metric, times=1, *, reason: counted.append((metric.name, times, reason)),
        report=troubles.append,
    )
    watcher.step()
    os.kill(pid_of(kafka), signal.SIGABRT)
    with capture_logs() as logs:
        watcher.step()
        watcher.step()
    watcher.close()
    assert counted == [("karrot_watch_failures_total", 1, "client_died")]
    said = "the process with the Kafka client ended (SIGABRT), and Karrot starts another one"
    assert troubles == [None, said, None]
    assert [each["event"] for each in logs] == ["cannot be watched", "can be watched again"]
    assert (logs[0]["code"], logs[0]["kafka_error"], logs[0]["reason"]) == ("not_watched", "client_died", said)
    assert [[each.consumer for each in outcome.groups] for outcome in held.outcomes] == [["billing"]] * 2


def test_a_child_that_never_answers_is_started_less_and_less_often() -> None:
    now = [0.0]
    kafka = ClientProcess(aborting, seconds=lambda: now[0])
    starts = []
    for second in range(100):
        now[0] = float(second)
        with pytest.raises(ClusterError) as raised:
            kafka.groups()
        assert raised.value.reason == "client_died"
        if "SIGABRT" in str(raised.value):
            starts.append(second)
    assert starts == [0, 1, 5, 13, 29, 59, 89]


def test_wrong_properties_are_found_before_the_first_poll(opened: Opened, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=hunter2")
    with pytest.raises(NotConnected) as raised:
        opened(partial(connect, ["kafka:9092"], file)).check()
    assert str(raised.value) == f'{file}: Invalid value "***" for configuration property "security.protocol"'
    secret = Secret("sasl.nosuch=hunter2")
    with pytest.raises(NotConnected, match="the client properties: No such configuration property"):
        opened(partial(connect, ["kafka:9092"], secret)).check()


def test_properties_that_became_wrong_are_a_failed_poll(opened: Opened) -> None:
    kafka = opened(wrong)
    with pytest.raises(ClusterError) as raised:
        kafka.groups()
    assert raised.value.reason == "properties"


def test_credentials_that_come_late_are_tried_again_by_the_next_poll(opened: Opened, tmp_path: Path) -> None:
    kafka = opened(partial(without_token, tmp_path / "asked"))
    kafka.check()  # this does not end the service
    assert kafka.groups().groups == {"billing": "Empty"}


def test_the_child_ends_at_once_when_its_parent_is_killed_also_during_a_request(tmp_path: Path) -> None:
    """The parent writes the child's id, and the child writes a file when it begins a request that never ends."""
    code = (
        "from pathlib import Path; from functools import partial\n"
        "from karrot.watch.client_process import ClientProcess\n"
        "from support.kafka.clusters_in_child import never\n"
        f"kafka = ClientProcess(partial(never, Path({str(tmp_path)!r})))\n"
        "kafka.groups()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_for((tmp_path / "pid").exists)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    wait_for(lambda: not runs(child))


def test_a_child_that_hangs_is_ended_as_if_it_had_died(tmp_path: Path) -> None:
    kafka = ClientProcess(partial(never, tmp_path), seconds=lambda: next(tens_of_minutes))
    tens_of_minutes = map(float, itertools.count(0, 601))
    with pytest.raises(ClusterError) as raised:
        kafka.groups()
    assert raised.value.reason == "client_died"


def test_a_stop_does_not_wait_for_the_answer_of_kafka(tmp_path: Path) -> None:
    counted: list[object] = []
    stop = threading.Event()
    kafka = ClientProcess(partial(never, tmp_path), stop)
    watcher = Watcher(
        "c", kafka, ManualClock(), Held().send, None, count=lambda *_args, **labels: counted.append(labels)
    )
    thread = threading.Thread(target=run, args=(watcher, stop))
    thread.start()
    wait_for((tmp_path / "pid").exists)
    stop.set()
    thread.join()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
    assert counted == []  # a stop is no failure


def test_the_child_ignores_a_signal_for_the_whole_service(opened: Opened) -> None:
    kafka = opened(cluster)
    kafka.groups()
    os.kill(pid_of(kafka), signal.SIGTERM)
    assert kafka.groups().groups == {"billing": "Empty"}
    child = kafka._child
    kafka.close()
    assert child is not None
    assert child.process.returncode == 0


def test_the_child_has_no_part_of_the_service_but_the_reader_of_kafka() -> None:
    code = "import sys; import karrot.watch.client_process, karrot.watch.kafka_admin; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"apsw", "botocore", "duckdb", "flask", "gunicorn", "psycopg", "pyarrow", "structlog", "urllib3"}
    assert not heavy & set(modules)
    assert {name for name in modules if name.startswith("karrot.watch.")} == {
        "karrot.watch.client_process",
        "karrot.watch.cluster_interface",
        "karrot.watch.kafka_admin",
    }
