"""Defines the `WebContext` of all routes, the headers of answers, and the choice of an answer's format.

The client's Accept headers choose HTML or JSON, and gzip.
"""

import gzip
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from flask import Response, current_app, request

from karrot.clock import Clock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.event_log import EventLog
from karrot.intake import Intake
from karrot.logs import LogTurns
from karrot.web.pages.last_weeks import AskLastWeeks

T = TypeVar("T")
D = TypeVar("D")

EXTENSION = "karrot"
"""The key of the `WebContext` in the Flask application's ``extensions``."""

RenderMetrics = Callable[[str, Sequence[str]], tuple[str, Iterable[bytes] | bytes]]
"""Renders metrics: ``(Accept header, name[] values) -> (content type, exposition)``."""

RESPONSE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # the URL of a group's page contains its name, and forms must send their Origin
    "Cache-Control": "no-store",
}
"""The headers of every answer, except of an accepted event."""

_WORTH_IT = 1400
"""Answers up to this size in bytes fit into one packet and are not gzipped. Gzip shrinks a table to an eighth."""

MEMORY_AGE = "Karrot-Memory-Age"
"""The header with the age in seconds of the groups in memory, while the event log cannot be read."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that Karrot accepts. Previous secrets are also valid, so that you can replace a secret.

    For ``/burrow``, ``basic`` has every valid ``user:password``, and ``bearer`` every valid token. ``readers`` has
    every valid API token.
    """

    basic: tuple[bytes, ...] = field(default=(), repr=False)
    bearer: tuple[bytes, ...] = field(default=(), repr=False)
    readers: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebContext:
    """The objects and settings that the routes read or call.

    ``max_body`` is in bytes. ``body_timeout`` and ``large_body_wait`` are in seconds. ``effective_settings`` returns
    the settings with redacted secrets. ``duties`` names the leader's other tasks (resync, watch), which have a state in
    the log. ``credentials`` returns the present credentials. ``expected_clusters`` must send events. ``queries``
    returns a group's queries in other systems, as pairs of system and query.
    """

    intake: Intake
    log: EventLog
    clock: Clock
    render_metrics: RenderMetrics
    effective_settings: Callable[[], Mapping[str, str]]
    reporters: Sequence[str]
    version: str
    credentials: Callable[[], Credentials] = field(default=Credentials, repr=False)
    metrics_auth: bool = False
    external_url: str | None = None
    duties: Sequence[str] = ()
    expected_clusters: Sequence[str] = ()
    max_consumers: int = 50_000
    queries: Callable[[str, str], Sequence[tuple[str, str]]] = lambda _cluster, _consumer: ()
    last_weeks: AskLastWeeks = lambda _cluster, _consumer: None
    max_body: int = 8 * 1024 * 1024
    body_timeout: float = 4.0
    large_body_wait: float = 2.0
    stale_after_ms: int = 300_000
    large_bodies: threading.Lock = field(default_factory=threading.Lock, repr=False)
    log_turns: LogTurns = field(default_factory=LogTurns, repr=False)


def web_context() -> WebContext:
    """Return the context of the current request's application."""
    return cast("WebContext", current_app.extensions[EXTENSION])


def if_readable(read: Callable[[], T], otherwise: D) -> T | D:
    """Return the result of ``read``, or ``otherwise`` while the event log cannot be read."""
    try:
        return read()
    except LogUnavailableError:
        return otherwise


def html_asked() -> bool:
    """Whether the client prefers HTML to JSON. ``*/*`` alone is not a preference."""
    accepted = request.accept_mimetypes
    return accepted["text/html"] > accepted["application/json"]


def gzip_accepted() -> bool:
    return request.accept_encodings["gzip"] > 0


def compress(response: Response) -> Response:
    """Gzip a response, for Flask's ``after_request``."""
    response.vary.add("Accept-Encoding")
    worth_it = (response.content_length or 0) > _WORTH_IT
    if worth_it and not response.content_encoding and gzip_accepted():
        response.set_data(gzip.compress(response.get_data(), compresslevel=1, mtime=0))
        response.content_encoding = "gzip"
    return response


def add_headers(response: Response) -> Response:
    """Add the headers of every answer, for Flask's ``after_request``."""
    for name, value in RESPONSE_HEADERS.items():
        response.headers.setdefault(name, value)
    if (age_ms := web_context().log.memory_age_ms()) is not None:
        response.headers[MEMORY_AGE] = str(round(age_ms / 1000))
    return response
