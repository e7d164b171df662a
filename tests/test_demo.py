import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.waiting import wait_for


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "said.txt"


@pytest.fixture
def demo(said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "karrot", "demo", "--groups", "12", "--speed", "5", "--port", "0"]
    with said.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    yield process
    process.kill()
    process.wait()


def address(said: Path) -> str:
    wait_for(lambda: "page" in said.read_text(), 30)
    return next(word for word in said.read_text().split() if word.startswith("http://")).rstrip("/")


def lags(base: str) -> dict[str, float]:
    with urlopen(f"{base}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            f"{sample.labels['cluster']}/{sample.labels['consumer']}": sample.value
            for family in families
            if family.name == "karrot_consumer_lag"
            for sample in family.samples
        }


def test_the_demo_shows_lag_that_moves_and_stops_without_a_trace(demo: "subprocess.Popen[bytes]", said: Path) -> None:
    base = address(said)
    wait_for(lambda: len(lags(base)) == 12, 30)
    first = lags(base)
    wait_for(lambda: sum(first.get(group) != lag for group, lag in lags(base).items()) >= 3, 30)
    with urlopen(f"{base}/") as page:
        assert b"orders-svc" in page.read()
    demo.send_signal(signal.SIGUSR1)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(30) == 0
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{base}/healthz")


def test_a_given_port_that_is_taken_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "karrot", "demo", "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (2, f"karrot: port {port} is taken\n")
