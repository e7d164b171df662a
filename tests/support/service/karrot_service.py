"""Runs ``karrot serve`` as its own process group, which a test can query, kill and restart."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from karrot.clock import SystemClock
from karrot.eventlog.base import StoredEvent
from support.eventlog.sqlite_log import open_sqlite
from support.service.free_ports import free_port
from support.waiting import wait_for


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: HTTPMessage

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Service:
    """``karrot serve`` on a directory; settings are named without ``KARROT_``. The output goes to ``said``.

    ``program`` are the arguments of Python that run ``karrot``. ``environment`` has more variables.
    """

    program: tuple[str, ...] = ("-m", "karrot")
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, directory: Path, *, arguments: tuple[str, ...] = (), **settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.arguments = arguments
        self.settings = {"workers": "2", "threads": "4", "data_dir": str(directory)} | settings
        self.said = directory.with_name(f"said-{self.port}.log")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # end a service that did not become ready
            self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, wait: bool = True) -> Self:
        own = {name: value for name, value in os.environ.items() if not name.startswith("KARROT_")}
        told = {f"KARROT_{name.upper()}": value for name, value in self.settings.items()}
        command = [sys.executable, *self.program, "serve", "--bind", f"127.0.0.1:{self.port}", *self.arguments]
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                command,
                env={**own, **self.environment, **told},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            wait_for(self.ready, 60)
        return self

    def ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said.read_text()
        try:
            return self.get("/readyz").status == 200
        except (OSError, HTTPException):
            return False

    def workers(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def kill(self) -> None:
        """End the whole process group at once, workers included."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, timeout_s: float = 15) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout_s)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, body: bytes, headers: dict[str, str] | None = None) -> Answer:
        return self.request("POST", "/burrow", body, headers)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers)

    def stored_consumers(self) -> Counter[str]:
        """Return the number of events of each consumer group in the log; every event must be complete."""
        log = open_sqlite(self.directory, SystemClock(), prepare=False, max_bytes=1 << 30)
        found: Counter[str] = Counter()
        after = 0
        try:
            while page := log.read(after):
                assert all(isinstance(event, StoredEvent) for event in page)
                found.update(event.event.consumer for event in page if isinstance(event, StoredEvent))
                after = page[-1].seq
        finally:
            log.close()
        return found

    def metric(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.get("/metrics").body.decode()):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None
