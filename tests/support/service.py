"""``karrot serve`` as a process of its own, on a free port."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import Request, urlopen

from support.waiting import wait_for

__all__ = ["Running", "running_service"]


class Running(NamedTuple):
    """A service that is ready."""

    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> str:
        with urlopen(f"{self.url}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def post(self, body: bytes) -> int:
        with urlopen(Request(f"{self.url}/burrow", data=body, method="POST"), timeout=5) as answer:
            return int(answer.status)


@contextmanager
def running_service(directory: Path, **environment: str) -> Iterator[Running]:
    """The service with its data below ``directory``; what it logs goes to ``service.log`` there.

    At the end it is stopped as an orchestrator does, and has to end well.
    """
    port = _free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KARROT_")}
    own = {"KARROT_DATA_DIR": str(directory / "data"), "KARROT_BIND": f"127.0.0.1:{port}"}
    with (directory / "service.log").open("wb") as log:
        command = [sys.executable, "-m", "karrot", "serve"]
        process = subprocess.Popen(command, env=inherited | own | environment, stdout=log, stderr=log, cwd=directory)
        service = Running(port, process)
        try:
            wait_for(lambda: process.poll() is not None or _is_ready(service))
            assert process.poll() is None, (directory / "service.log").read_text()
            yield service
        finally:
            process.terminate()
            code = process.wait(15)
    assert code == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_ready(service: Running) -> bool:
    try:
        return bool(service.get("/readyz"))
    except (URLError, OSError):
        return False
