"""Runs HAProxy in front of several Karrots on this machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

import pytest

from support.service.free_ports import free_port
from support.waiting import wait_for

_CONFIGURATION = """
defaults
    mode http
    timeout connect 500ms
    timeout client 30s
    timeout server 10s
    timeout check 1500ms
    default-server check inter 200ms fastinter 100ms fall 2 rise 1
frontend karrot
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk GET /readyz
    option redispatch 1
    retries 2
    # Never a request that a Karrot may have got: an event that was sent once must not be stored twice.
    retry-on conn-failure
    {servers}
"""


class HaProxy(NamedTuple):
    """A running HAProxy, on ``port``."""

    port: int


@contextmanager
def running_haproxy(ports: Sequence[int], directory: Path) -> Iterator[HaProxy]:
    """Distribute requests to Karrots on these ports. Without HAProxy the test is skipped."""
    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("needs HAProxy (Debian: apt-get install haproxy)")
    port = free_port()
    servers = "\n    ".join(f"server replica-{number} 127.0.0.1:{each}" for number, each in enumerate(ports))
    configuration = directory / f"haproxy-{port}.cfg"
    configuration.write_text(_CONFIGURATION.format(port=port, servers=servers))
    process = subprocess.Popen([program, "-q", "-f", configuration])

    def answers() -> bool:
        assert process.poll() is None
        with suppress(OSError, HTTPException), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    try:
        wait_for(answers, 30)
        yield HaProxy(port)
    finally:
        process.kill()
        process.wait()
