"""Runs Alertmanager, and checks its configuration with amtool."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.processes import NotStarted, Server, Servers, wait_until
from support.service.free_ports import free_port

_MISSING = "needs Alertmanager: install Debian's prometheus-alertmanager, or set ALERTMANAGER_BIN"

_DEBIAN_TEMPLATES = Path("/usr/share/prometheus/alertmanager/default.tmpl")
"""The directory in which Debian's server looks for its templates, independent of its own location."""


def amtool(*arguments: str | Path) -> str:
    """Run amtool and return its output. A failure fails the test; without amtool the test is skipped."""
    command = [_server().with_name("amtool"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


class Alertmanager:
    """A running Alertmanager."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def take(self, alerts: Sequence[dict[str, Any]]) -> None:
        """Post alerts like Prometheus."""
        body = json.dumps(alerts).encode()
        with urlopen(Request(f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"})):
            pass

    def states(self) -> dict[str, str]:
        """Return ``active``, ``suppressed`` or ``unprocessed`` for each alert, by name."""
        with urlopen(f"{self.url}/api/v2/alerts") as answer:
            return {each["labels"]["alertname"]: each["status"]["state"] for each in json.load(answer)}

    def is_ready(self) -> bool:
        with suppress(URLError, ConnectionError), urlopen(f"{self.url}/-/ready"):
            return True
        return False


@contextmanager
def alertmanager(config: Path, directory: Path) -> Iterator[Alertmanager]:
    """Start the server with a configuration and wait until it is ready; without the program the test is skipped."""
    running, port = _server(), free_port()
    if running.is_relative_to(default_cache()) and not _DEBIAN_TEMPLATES.exists():
        pytest.skip(_MISSING)
    with Servers(directory) as servers:
        command: list[str | Path] = [running, f"--config.file={config}", f"--storage.path={directory / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        server: Server = servers.start("alertmanager", command)
        api = Alertmanager(port)
        wait_until(api.is_ready, [server], what="Alertmanager is ready")
        yield api


@cache
def _found() -> Path | None:
    try:
        return Downloads(default_cache()).alertmanager()
    except (NotStarted, OSError):
        return None


def _server() -> Path:
    return _found() or pytest.skip(_MISSING)
