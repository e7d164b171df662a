import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from karrot.demo.demo import environment_of
from support.service.free_ports import free_port
from support.waiting import wait_for


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "said.txt"


@pytest.fixture
def demo(said: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "karrot", "demo", "--groups", "12", "--speed", "5", "--port", str(free_port())]
    environment = {**os.environ, "TMPDIR": str(said.parent)}  # a demo that is killed leaves its directory behind
    with said.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    yield process
    process.kill()
    process.wait()


def address(said: Path) -> str:
    wait_for(lambda: "Ctrl-C stops everything" in said.read_text(), 30)
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


def sent(fake: str) -> set[str]:
    """Return the metrics that the fake CloudWatch has got."""
    return set(re.findall(r"^Karrot (\w+) Cluster=", read(Request(fake)), re.MULTILINE))


def read(request: Request) -> str:
    with urlopen(request) as answer:
        return str(answer.read().decode())


def test_the_demo_shows_changing_lag_and_what_cloudwatch_got_and_leaves_nothing_behind_when_it_stops(
    demo: "subprocess.Popen[bytes]", said: Path
) -> None:
    base = address(said)
    wait_for(lambda: len(lags(base)) == 12, 30)
    first = lags(base)
    wait_for(lambda: sum(first.get(group) != lag for group, lag in lags(base).items()) >= 3, 30)
    with urlopen(f"{base}/") as page:
        assert b"orders-svc" in page.read()
    burrow = re.findall(r"--burrow (\S+)", said.read_text())[0]
    with urlopen(f"{burrow}/v3/kafka") as answer:
        assert sorted(json.load(answer)["clusters"]) == ["prod-eu", "prod-us"]
    (typed,) = re.findall(r"^  Burrow +(.+)$", said.read_text(), re.MULTILINE)
    groups = subprocess.run(shlex.split(typed), capture_output=True, text=True, check=True)
    assert "orders-svc" in groups.stdout
    fake = re.findall(r"(http://\S+)/ is the local fake CloudWatch", said.read_text())[0]
    wait_for(lambda: sent(fake) == {"Heartbeat", "Lag", "LagSeconds"}, 30)
    reporter = Request(f"{base}/reporters/cloudwatch", headers={"Accept": "text/html"})
    wait_for(lambda: "Heartbeat {Cluster=prod-eu}" in read(reporter), 30)
    called = re.compile(r"karrot_reporter_cloudwatch_requests_total\{[^}]*status=\"200\"\} [1-9]")
    wait_for(lambda: called.search(read(Request(f"{base}/metrics"))) is not None, 30)
    demo.send_signal(signal.SIGINT)
    assert demo.wait(30) == 0
    assert said.read_text().endswith("\nThe demo has stopped.\n")
    for closed in (f"{base}/healthz", fake):
        with pytest.raises(OSError, match="refused"):
            urlopen(closed)


def refused(url: str) -> bool:
    try:
        urlopen(url).close()
    except OSError as error:
        return "refused" in str(error)
    return False


def test_killing_the_demo_ends_the_service(demo: "subprocess.Popen[bytes]", said: Path) -> None:
    base = address(said)
    demo.kill()
    wait_for(lambda: refused(f"{base}/healthz"), 30)


def test_a_demo_whose_service_dies_says_so(demo: "subprocess.Popen[bytes]", said: Path) -> None:
    address(said)
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
    [service] = [int(each) for each in children if b"serve" in Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")]
    os.kill(service, signal.SIGKILL)
    assert demo.wait(30) == 1
    assert "\nThe demo has stopped: its service died (exit code -9).\n" in said.read_text()


def test_a_demo_whose_terminal_closes_leaves_nothing_behind(tmp_path: Path, said: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "karrot", "demo", "--port", "0"]
    # `nohup make test` starts programs with SIGHUP ignored; the shell of a terminal does not.
    command = ["env", "--default-signal=HUP", *command]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        base = address(said)
        assert [path.name[:12] for path in temporary.glob("karrot-demo-*")] == ["karrot-demo-"]
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0
    assert refused(f"{base}/healthz")
    assert list(temporary.glob("karrot-demo-*")) == []


@pytest.mark.parametrize(("output", "code"), [(">/dev/full", 1), (">&-", 0)])
def test_a_demo_that_cannot_print_ends_as_other_commands_do(tmp_path: Path, output: str, code: int) -> None:
    port = free_port()
    command = shlex.join([sys.executable, "-m", "karrot", "demo", "--port", str(port), "--groups", "3", "--speed", "5"])
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    arguments = ["sh", "-c", f"exec {command} {output}"]
    with subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE) as process:
        if code == 0:
            base = f"http://127.0.0.1:{port}"
            wait_for(lambda: not refused(f"{base}/healthz") and len(lags(base)) == 3, 60)
            process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert error.decode() == ("karrot: [Errno 28] No space left on device\n" if code else "")


def test_the_doctor_finds_no_problem_of_the_demo(said: Path) -> None:
    command = [sys.executable, "-m", "karrot", "demo", "--port", "0", "--speed", "3"]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        base = address(said)
        [burrow] = re.findall(r"--burrow (\S+)", said.read_text())
        wait_for(lambda: len(lags(base)) == 24, 30)
        doctor = [sys.executable, "-m", "karrot", "doctor", "--burrow", burrow, "--karrot", base, "--all"]
        found = subprocess.run(doctor, capture_output=True, text=True, check=False)
        process.send_signal(signal.SIGINT)
    assert "0 faults, 0 warnings" in found.stdout, found.stdout
    assert found.returncode == 0
    for unreachable in ("could not be read", "could not be reached"):
        assert unreachable not in found.stdout


def test_the_machine_s_own_credentials_do_not_reach_the_demo(tmp_path: Path) -> None:
    machine = {
        "PATH": "/bin",
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL": "https://example.org",
        "KARROT_IAM_ROLE": "arn:aws:iam::123456789012:role/karrot",
        "KARROT_TABLES_DIR": "build/history/tables",
        "https_proxy": "http://127.0.0.1:1",
    }
    environment = environment_of(machine, tmp_path, "http://127.0.0.1:4566")
    assert (environment["PATH"], environment["KARROT_TABLES_DIR"]) == ("/bin", "build/history/tables")
    assert not set(environment) & (set(machine) - {"PATH", "KARROT_TABLES_DIR"})
    assert environment["AWS_ENDPOINT_URL_CLOUDWATCH"] == "http://127.0.0.1:4566"
    assert environment["AWS_CONFIG_FILE"] == environment["AWS_SHARED_CREDENTIALS_FILE"] == "/dev/null"


def test_a_given_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "karrot", "demo", "--port", str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == os.EX_TEMPFAIL
    assert ended.stderr == (
        f"karrot: port {port} is in use on 127.0.0.1: choose another port with --port, or let the system choose: "
        "--port 0\n"
    )
