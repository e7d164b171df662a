"""Remembers when a program last read ``/metrics``, for the pages. All workers and replicas share the time."""

from contextlib import suppress
from typing import NamedTuple, cast

from flask import current_app

from karrot.eventlog.base import LogUnavailableError
from karrot.text import duration
from karrot.web.context import WebContext, if_readable

EXTENSION = "karrot-last-scrape"
_PROMETHEUS, _NOTE = "prometheus", "scraped"
_LEAST_MS = 5000
"""The time between two notes of one worker, so that frequent scrapes write little."""


class ShownState(NamedTuple):
    """The state of a reporter as the pages show it: the kind of shape, and words."""

    kind: str
    words: str


class LastScrape:
    """The time of the last scrape. After a start, a missing scrape is a problem after ``KARROT_STALE_AFTER``."""

    def __init__(self, context: WebContext) -> None:
        self._log, self._clock, self._grace_ms = context.log, context.clock, context.stale_after_ms
        self._started_ms = self._clock.boot_ms()
        self._noted_ms = self._started_ms - _LEAST_MS

    def note(self) -> None:
        """Remember a scrape now. Does not wait, because a scrape has a deadline."""
        if self._clock.boot_ms() - self._noted_ms >= _LEAST_MS:
            self._noted_ms = self._clock.boot_ms()
            with suppress(LogUnavailableError):
                self._log.remember_soon(_PROMETHEUS, _NOTE, str(self._clock.wall_ms()).encode())

    def shown(self, name: str, state: str) -> ShownState:
        """The state of a reporter. An idle ``prometheus`` shows the age of the last scrape."""
        if name != _PROMETHEUS or state != "idle":
            return ShownState({"ok": "ok", "failing": "err"}.get(state, "other"), state)
        note = if_readable(lambda: self._log.recall(_PROMETHEUS, _NOTE), b"")
        if note:
            age_ms = max(0, self._clock.wall_ms() - int(note))
            return ShownState("warn" if age_ms > self._grace_ms else "ok", f"scraped {duration(age_ms / 1000)} ago")
        if note is None and self._clock.boot_ms() - self._started_ms > self._grace_ms:
            return ShownState("warn", "never scraped")
        return ShownState("other", "not scraped yet" if note is None else "last scrape unknown")


def last_scrape() -> LastScrape:
    return cast("LastScrape", current_app.extensions[EXTENSION])
