"""Serves ``/metrics`` for Prometheus, and remembers when a program read it last."""

import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, cast

from flask import Blueprint, Response, current_app, request

from karrot.eventlog.base import LogUnavailableError
from karrot.text import duration
from karrot.web.auth import require_reader
from karrot.web.context import WebContext, gzip_accepted, if_readable, web_context

_FASTEST = 1
"""The gzip level. A scrape has a deadline, so speed matters more than size."""

_GZIP_WINDOW = 31
"""zlib's ``wbits`` for the largest window with a gzip header."""

EXTENSION = "karrot-last-scrape"
_PROMETHEUS, _NOTE = "prometheus", "scraped"
_LEAST_MS = 5000
"""The time between two notes of one worker, so that frequent scrapes write little."""

routes = Blueprint("metrics", __name__)


@routes.before_request
def _authorize() -> None:
    if web_context().metrics_auth:
        require_reader()


@routes.get("/metrics")
def metrics() -> Response:
    """Answer the metrics in text format or OpenMetrics, by ``Accept``. ``name[]`` limits the sample names."""
    content_type, exposition = web_context().render_metrics(
        request.headers.get("Accept", ""), request.args.getlist("name[]")
    )
    made = iter((exposition,) if isinstance(exposition, bytes) else exposition)
    chunks: Iterator[bytes] = chain([next(made, b"")], made)  # a failure in the first chunk is answered as a problem
    response = Response(content_type=content_type)
    response.vary.update(("Accept", "Accept-Encoding"))
    if gzip_accepted():
        response.content_encoding = "gzip"
        chunks = gzipped(chunks)
    response.response = chunks
    if request.headers.get("User-Agent") != "karrot":  # a command of Karrot, which shows no one who scrapes
        cast("LastScrape", current_app.extensions[EXTENSION]).note()
    return response


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress the chunks as one gzip member."""
    squeeze = zlib.compressobj(_FASTEST, wbits=_GZIP_WINDOW)
    for chunk in chunks:
        if squeezed := squeeze.compress(chunk):
            yield squeezed
    yield squeeze.flush()


class ShownState(NamedTuple):
    """The state of a reporter as the pages show it: the kind of shape, and words."""

    kind: str
    words: str


class LastScrape:
    """The time of the last scrape, which all workers and replicas share.

    A missing scrape is a problem ``KARROT_STALE_AFTER`` after the start of the worker.
    """

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
