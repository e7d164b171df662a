"""Remembers when a program last read ``/metrics``, for the pages. All workers and replicas share the time."""

from contextlib import suppress
from typing import NamedTuple, cast

from flask import current_app

from karrot.clock import Clock
from karrot.eventlog.base import EventLog, LogUnavailableError
from karrot.text import duration
from karrot.web.context import if_readable

EXTENSION = "karrot-last-scrape"
PROMETHEUS = "prometheus"
"""The reporter whose state on the pages is the age of the last scrape."""

_NOTE = "scraped"
_LEAST_MS = 5000
"""The time between two notes of one worker, so that frequent scrapes write little."""


class ShownState(NamedTuple):
    """The state of a reporter as the pages show it: the kind of shape, and words."""

    kind: str
    words: str


class LastScrape:
    """Reads and writes the time of the last scrape. No scrape for ``grace_ms`` since the start is a problem."""

    def __init__(self, log: EventLog, clock: Clock, grace_ms: int) -> None:
        self._log, self._clock, self._grace_ms = log, clock, grace_ms
        self._started_ms = clock.boot_ms()
        self._noted_ms = self._started_ms - _LEAST_MS

    def note(self) -> None:
        """Remember a scrape now. Does not wait, because a scrape has a deadline."""
        if self._clock.boot_ms() - self._noted_ms >= _LEAST_MS:
            self._noted_ms = self._clock.boot_ms()
            with suppress(LogUnavailableError):
                self._log.remember_soon(PROMETHEUS, _NOTE, str(self._clock.wall_ms()).encode())

    def state(self) -> ShownState:
        """How long ago the last scrape was. It is a problem if nothing scraped Karrot for ``grace_ms``."""
        note = if_readable(lambda: self._log.recall(PROMETHEUS, _NOTE), b"")
        if note:
            age_ms = max(0, self._clock.wall_ms() - int(note))
            return ShownState("warn" if age_ms > self._grace_ms else "ok", f"scraped {duration(age_ms / 1000)} ago")
        if note is not None:
            return ShownState("other", "last scrape unknown")
        if self._clock.boot_ms() - self._started_ms > self._grace_ms:
            return ShownState("warn", "never scraped")
        return ShownState("other", "not scraped yet")


def last_scrape() -> LastScrape:
    """Return the last scrape of the current request's application."""
    return cast("LastScrape", current_app.extensions[EXTENSION])


def shown_state(name: str, state: str) -> ShownState:
    """The state of a reporter for the pages, where ``state`` is ``idle``, ``ok`` or ``failing``."""
    if name == PROMETHEUS and state == "idle":
        return last_scrape().state()
    return ShownState({"ok": "ok", "failing": "err"}.get(state, "other"), state)
