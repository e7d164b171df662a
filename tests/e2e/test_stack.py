"""The servers that the other tests of this directory rely on."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.processes import NotStarted
from e2e.stack.stack import Parts, running
from e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
def downloads() -> Downloads:
    return Downloads(default_cache())


def processes_below(directory: Path) -> list[str]:
    """Return the command lines that name a path below the directory."""
    found = [path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [each for each in found if str(directory) in each]


def test_a_start_that_fails_shows_the_logs_and_leaves_no_process(cache: Path, downloads: Downloads) -> None:
    kafka, _ = downloads.jars("4.1.2")
    (cache / kafka.name).unlink()
    (cache / kafka.name).mkdir()  # no jar in it
    with pytest.raises(NotStarted, match="formatting ended with 1") as failure:
        running(Parts(), cache / "run", Downloads(cache)).__enter__()
    [tails] = failure.value.__notes__
    assert "--- zookeeper (still runs), the end of" in tails
    assert "--- kafka-format (ended with 1), the end of" in tails
    assert "Could not find or load main class kafka.tools.StorageTool" in tails
    assert processes_below(cache) == []


def test_a_stack_stays_up_between_two_commands(commands: Callable[..., str], cache: Path) -> None:
    said = commands("up", "--brokers", "1")
    addresses = dict(line.split("=") for line in said.splitlines() if not line.startswith("#"))
    with urlopen(f"{addresses['PROMETHEUS_URL']}/-/ready", timeout=10) as answer:
        assert answer.status == 200
    consumer = Consumer({"bootstrap.servers": addresses["KAFKA_BOOTSTRAP"], "group.id": "nobody"})
    assert "__consumer_offsets" in consumer.list_topics(timeout=10).topics
    consumer.close()
    assert "a stack is up" in commands("up", "--brokers", "1", fails=True)
    assert commands("down") == "the stack is down\n"
    assert commands("down") == "no stack was up\n"
    assert processes_below(cache) == []
    assert (cache / "kept" / "kafka-1.log").exists()


def test_nothing_outlives_a_killed_keeper(commands: Callable[..., str], cache: Path) -> None:
    commands("up", "--brokers", "1")
    os.kill(int((cache / "kept" / "pid").read_text()), signal.SIGKILL)
    wait_for(lambda: processes_below(cache) == [])
    assert commands("down") == "no stack was up\n"


@pytest.fixture
def cache(tmp_path: Path, downloads: Downloads) -> Path:
    """Return a new cache for a kept stack, with the jars of the usual cache."""
    for place in downloads.jars("4.1.2"):
        (tmp_path / place.name).symlink_to(place)
    return tmp_path


@pytest.fixture
def commands(cache: Path, downloads: Downloads) -> Iterator[Callable[..., str]]:
    """Yield a function that runs ``python -m e2e.stack`` on that cache; end a stack that a failed test left up."""
    told = {"KARROT_E2E_CACHE": str(cache), "PROMETHEUS_BIN": str(downloads.prometheus()), "PYTHONPATH": "tests"}

    def run(*arguments: str, fails: bool = False) -> str:
        command = [sys.executable, "-m", "e2e.stack", *arguments]
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(command, cwd=root, env=os.environ | told, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout

    yield run
    run("down")
