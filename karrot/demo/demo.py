"""Runs ``karrot demo``: the real service in a process of its own, a simulated Burrow, and a fake CloudWatch.

The three programs communicate over HTTP, and only on this machine.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import structlog

from karrot import logs
from karrot.burrow.payload import to_wire
from karrot.clock import Clock, SystemClock
from karrot.demo.local_server import CloudWatchReceiver, serve_locally
from karrot.demo.simulated_burrow import CLUSTERS, TIMEOUT_S, BurrowApi, SimulatedBurrow
from karrot.event import LagEvent
from karrot.eventlog.base import LogUnavailableError
from karrot.http_client import ACCEPTED, HttpClient, Limits, RequestFailed
from karrot.settings.sources import PREFIX

_log = structlog.get_logger(__name__)

_HOST = "127.0.0.1"
_DEFAULT_PORT = 5000
_PORTS_TRIED = 100
_READY_S = 20.0
_STOP_S = 12.0
_OK = 200
_THREADS = 16
_PAUSE_S = 0.05
_LEASH = 'read -r _; kill -TERM "$1"'
_TABLES = f"{PREFIX}TABLES_DIR"
"""The only setting that the demo takes from the environment: ``make history`` writes tables of the demo's groups."""

_CLOUDWATCH = {
    f"{PREFIX}REPORTERS": "prometheus,cloudwatch",
    f"{PREFIX}CLOUDWATCH_METRICS": "Lag,LagSeconds",
    f"{PREFIX}CLOUDWATCH_INTERVAL": "10s",
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def demo(port: int | None, groups: int, seed: int, speed: float) -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP. Returns the exit code.

    Without ``port``, the demo uses port 5000 or the next free port. Raises `OSError` if ``port`` is in use, and
    `LogUnavailableError` if the service does not become ready.
    """
    logs.configure("WARNING", sys.stdout)
    chosen = _free_port(_DEFAULT_PORT, _PORTS_TRIED) if port is None else _free_port(port, 1)
    stop = threading.Event()
    # SIGHUP means that the terminal was closed. Under ``nohup``, it does not end the demo.
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *[signal.SIGHUP] * (not ignores_hangup)):
        # Set the event in a new thread: the handler interrupts the main thread, which can hold the event's lock.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    clock, cloudwatch = SystemClock(), CloudWatchReceiver()
    base = f"http://{_HOST}:{chosen}"
    with (
        tempfile.TemporaryDirectory(prefix="karrot-demo-") as directory,
        serve_locally(cloudwatch.page, cloudwatch.put) as cloudwatch_url,
        _service(chosen, Path(directory), cloudwatch_url) as service,
    ):
        _await_ready(service, chosen, stop)

        def stop_with_service() -> None:
            service.wait()
            stop.set()

        threading.Thread(target=stop_with_service, daemon=True).start()
        burrow = SimulatedBurrow(groups, seed=seed, speed=speed, start_ms=clock.wall_ms())
        summary = f"{groups} consumer groups on {len(CLUSTERS)} clusters (seed {seed}, speed {speed:g})"
        with serve_locally(BurrowApi(burrow, clock, base).answer) as burrow_url:
            print(_greeting(base, burrow_url, cloudwatch_url, summary), flush=True)  # noqa: T201 - the command's output
            post_verdicts(burrow, f"{base}/burrow", stop, clock=clock)
        code = service.poll()
    print("The demo has stopped" + ("." if code is None else f": its service died (exit code {code})."))  # noqa: T201
    return 0 if code is None else 1


def _free_port(first: int, tried: int) -> int:
    for port in range(first, first + tried):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    last = first + tried - 1
    taken = f"port {first} is" if tried == 1 else f"ports {first} to {last} are all"
    raise OSError(f"{taken} in use on {_HOST}: choose another port with --port, or let the system choose: --port 0")


@contextmanager
def _service(port: int, directory: Path, cloudwatch: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run ``karrot serve`` with the demo's own settings inside the ``with`` block, and then stop the service."""
    command = [sys.executable, "-m", "karrot", "serve", "--bind", f"{_HOST}:{port}"]
    # The service has its own session: Ctrl-C then reaches only the demo, which stops the service properly.
    environment = environment_of(os.environ, directory, cloudwatch)
    service = subprocess.Popen(command, env=environment, start_new_session=True)  # noqa: S603
    # A shell stops the service when the shell's standard input closes: at the demo's end, or if the demo is killed.
    held = ["/bin/sh", "-c", _LEASH, "sh", str(service.pid)]
    leash = subprocess.Popen(held, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
    try:
        yield service
    finally:
        if service.poll() is not None:  # the service has ended, and another process may have its id now
            leash.kill()
        leash.communicate()
        try:
            service.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


def environment_of(environ: Mapping[str, str], directory: Path, cloudwatch: str) -> dict[str, str]:
    """Return the service's environment, without AWS credentials and proxies, so that it sends only to the fake."""
    kept = {
        name: value
        for name, value in environ.items()
        if name == _TABLES or not (name.startswith((PREFIX, "AWS_")) or name.lower().endswith("_proxy"))
    }
    own = {f"{PREFIX}DATA_DIR": str(directory), f"{PREFIX}LOG": "WARNING", "AWS_ENDPOINT_URL_CLOUDWATCH": cloudwatch}
    return kept | _CLOUDWATCH | own


def _await_ready(service: "subprocess.Popen[bytes]", port: int, stop: threading.Event) -> None:
    deadline = time.monotonic() + _READY_S
    with HttpClient(f"http://{_HOST}:{port}", Limits(timeout_s=2, retries=0)) as client:
        while not stop.wait(0.05):
            with suppress(RequestFailed):
                if client.get("/readyz").status == _OK:
                    return
            if service.poll() is not None or time.monotonic() > deadline:
                raise LogUnavailableError("the service did not start; its messages are above")


def _typed() -> str:
    """Return the command for this program: ``karrot`` or, if ``karrot`` is not on PATH (as in a clone), its path."""
    installed = Path(sys.executable).with_name("karrot")
    return "karrot" if shutil.which("karrot") or not installed.exists() else shlex.quote(os.path.relpath(installed))


def _greeting(base: str, burrow: str, cloudwatch: str, summary: str) -> str:
    groups = f"{_typed()} groups --burrow {burrow} --cluster {CLUSTERS[0]}"
    return (
        f"Karrot with a simulated Burrow: {summary}\n\n"
        f"  page        {base}/\n"
        f"  metrics     {base}/metrics\n"
        f"  API         {base}/api/v1/groups\n"
        f"  health      {base}/readyz\n"
        f"  Burrow      {groups}\n"
        f"  CloudWatch  {base}/reporters/cloudwatch\n"
        f"              {cloudwatch}/ is the local fake CloudWatch; nothing goes to AWS\n\n"
        "make history: makes tables and a report from a simulated week of these groups.\n"
        "Groups fall behind and recover as you watch. Ctrl-C stops everything."
    )


def post_verdicts(burrow: SimulatedBurrow, url: str, stop: threading.Event, *, clock: Clock) -> None:
    """Post due verdicts until ``stop`` is set.

    While posts wait for answers, no group is judged, because a slow receiver also slows down a real Burrow.
    """
    client = HttpClient(url, Limits(timeout_s=TIMEOUT_S, connections=_THREADS))
    logged: set[str | None] = {None}
    with client, ThreadPoolExecutor(_THREADS, thread_name_prefix="simulated-burrow") as threads:
        while not stop.wait(_PAUSE_S):
            for problem in threads.map(partial(_post, client, stop), burrow.due(clock.wall_ms())):
                if problem not in logged:  # Burrow logs each failure; the demo logs each problem only once
                    _log.warning("the simulated Burrow's posts are refused", code="demo_refused", reason=problem)
                logged.add(problem)


def _post(client: HttpClient, stop: threading.Event, verdict: LagEvent) -> str | None:
    """Post one verdict, unless the demo ends. Return the problem if the post fails, otherwise ``None``."""
    if stop.is_set():
        return None
    try:
        status = client.post("", to_wire(verdict)).status
    except RequestFailed as error:
        return error.said
    return None if status in ACCEPTED else f"HTTP {status}"
