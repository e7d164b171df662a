"""Runs the notify reporter on an event log in memory, with a clock that the test moves, and a receiver of messages."""

import json
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from karrot.delivery import Feed
from karrot.event import GroupKey
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import read_report
from karrot.reporters.notify import build
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context
from support.waiting import wait_for

STALE_AFTER_MS = 600_000


class Receiver(ThreadingHTTPServer):
    """An HTTP server that keeps the JSON of each accepted request. It answers ``status``, after ``free`` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.tried, self.free = 200, 0, threading.Event()
        self.free.set()
        self.seen: list[tuple[str, Any]] = []

    def url(self, path: str = "hook") -> str:
        return f"json://127.0.0.1:{self.server_port}/{path}"

    def messages(self, path: str = "/hook") -> list[str]:
        """The titles and texts that came to one path."""
        return [f"{body['title']}\n{body['message']}" for at, body in self.seen if at == path]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.tried += 1
        self.server.free.wait()
        if self.server.status == 200:
            self.server.seen.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Retry-After", "45")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Keep requests off standard error."""


class NotifyRig:
    """A reporter whose file has the text ``routes``."""

    def __init__(self, folder: Path, routes: str, **settings: str) -> None:
        self.clock = ManualClock()
        self.log = MemoryEventLog(self.clock, stale_after_ms=STALE_AFTER_MS)
        self._file = folder / "notify.toml"
        self._file.write_text(routes, encoding="utf-8")
        self._settings = settings
        self._muted: Callable[[Sequence[GroupKey]], Collection[GroupKey]] = lambda _: ()
        self.restart()

    def mute(self, muted: Callable[[Sequence[GroupKey]], Collection[GroupKey]]) -> None:
        """Build the reporter again, with a function that chooses the muted groups."""
        self._muted = muted
        self.restart()

    def restart(self) -> None:
        """Build the reporter again, as after a crash or in the next leader."""
        settings = {"config": str(self._file)} | self._settings
        context = make_context("notify", settings, log=self.log, clock=self.clock)
        self.reporter = build(replace(context, muted=self._muted))
        self._feed = Feed("notify", self.log, self.clock, Random(1), lambda: self.reporter)

    def tell(self, status: str, consumer: str = "orders", incident: str | None = "a", **overrides: Any) -> None:
        told = {"consumer": consumer, "status_text": status, "incident_id": incident} | overrides
        append_event(self.log, observed_at_ms=self.clock.wall_ms(), **told)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Let seconds pass until the condition holds."""

        def passes() -> bool:
            self.run(1)
            return condition()

        wait_for(passes)

    def run(self, seconds: int) -> None:
        """Let seconds pass, and wait for the end of each send."""
        for _ in range(seconds):
            self.clock.advance(1000)
            self._feed.step()
            for channel in self.reporter._channels:
                if channel.sending is not None and channel.name != "hanging":
                    channel.sending[1].result(30)

    def state(self) -> tuple[str, str | None]:
        """The state of the reporter and its last error, as pages, ``/readyz`` and the doctor read them."""
        [kept] = self.log.reporters()
        return kept.state, kept.last_error

    def facts(self) -> dict[str, str]:
        report = read_report(self.log.recall("notify", "report"))
        return {} if report is None else {fact.name: fact.text for fact in report.facts}

    def counted(self, name: str) -> dict[str, float]:
        return {dict(each.labels)["reason"]: each.value for each in self.log.counters() if each.name == name}
