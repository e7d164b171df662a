"""Runs an application of `harness.baseline_apps` under gunicorn, as a baseline for Karrot."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from support.service.free_ports import free_port
from support.waiting import wait_for

_BENCHMARKS = Path(__file__).resolve().parents[1]


@contextmanager
def run_baseline(place: Path, name: str, *options: str) -> Iterator[int]:
    """Run the application of this name with gunicorn's ``options``; yield its port."""
    port = free_port()
    multiprocess = place / f"multiprocess-{port}"
    multiprocess.mkdir()
    command = [sys.executable, "-m", "gunicorn", *options, "--keep-alive", "75", "--no-control-socket"]
    process = subprocess.Popen(
        [*command, "-b", f"127.0.0.1:{port}", f"harness.baseline_apps:{name}()"],
        cwd=_BENCHMARKS,
        env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(multiprocess)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: _listens(port))
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _listens(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()
    return True
