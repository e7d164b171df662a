"""Answers a failed request with ``application/problem+json`` (RFC 9457), or with an HTML page of the same content."""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
import structlog
from flask import Flask, Response, g, render_template, request
from werkzeug.exceptions import BadHost, HTTPException, MethodNotAllowed

from karrot.eventlog.base import LogUnavailableError, OverloadedError, UnconfirmedError
from karrot.runbooks_and_remedies import CODES
from karrot.web.context import html_asked

TYPE_PREFIX = "urn:problem-type:karrot:"

_log = structlog.get_logger(__name__)

_TO_READERS = {
    "invalid_field": "A parameter in the URL or a field is wrong. Use the links and the forms of the page instead.",
    "bad_request": "Karrot cannot read this URL. Start again from the list of groups.",
    "not_found": "Check the URL for typing errors, or open the list of groups: it has all groups that are known now.",
    "unauthorized": "Enter Karrot's API token, `KARROT_API_TOKEN`, as the password. Any user name works. Your "
    "administrator has the token.",
    "method_not_allowed": "Open this page with GET.",
}
"""Remedies for readers of pages. The remedies in `CODES` are for people who can change Burrow or a client program."""

RETRY_AFTER = ("Retry-After", "1")
"""The header of every answer 503."""

FOR_READERS = "is_for_readers"
"""The name of a flag in Flask's ``g``, which is true if the current request may read."""

_BY_STATUS = {404: "not_found", 411: "length_required", 413: "too_large"}


class ProblemBody(msgspec.Struct, omit_defaults=True):
    """An error (RFC 9457). ``code`` is stable. ``path`` names the wrong field or parameter."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    path: str | None = None


class Problem(Exception):  # noqa: N818 (the word of RFC 9457)
    """Ends a request with an error. ``code`` is a key of `CODES`."""

    def __init__(
        self, code: str, detail: str, *, path: str | None = None, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.path = path
        self.headers = headers

    @property
    def body(self) -> ProblemBody:
        known = CODES[self.code]
        return ProblemBody(TYPE_PREFIX + self.code, known.title, known.status, self.detail, self.code, self.path)


def install(app: Flask) -> None:
    """Register the error handlers, which answer every failed request with a problem."""
    app.register_error_handler(Problem, _respond)
    app.register_error_handler(HTTPException, _from_http)
    app.register_error_handler(LogUnavailableError, _log_unavailable)
    app.register_error_handler(OverloadedError, lambda error: _respond(Problem("overloaded", str(error))))
    app.register_error_handler(Exception, _unexpected)


def _respond(problem: Problem) -> Response:
    status = CODES[problem.code].status
    response = Response(msgspec.json.encode(problem.body), status=status, content_type="application/problem+json")
    # An HTML page has links, and url_for cannot make links for an invalid host.
    addressed = not isinstance(request.routing_exception, BadHost)
    if addressed and html_asked() and not request.path.startswith(("/api/", "/burrow")):
        response.content_type = "text/html; charset=utf-8"
        remedy = _TO_READERS.get(problem.code, CODES[problem.code].remedy)
        response.set_data(render_template("problem.html", problem=problem.body, remedy=remedy))
    response.headers.extend(problem.headers)
    response.vary.add("Accept")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers.set(*RETRY_AFTER)
    return response


def _from_http(error: HTTPException) -> Response:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        detail = f"This route allows only {allowed}."
        if request.path.rstrip("/") == "/burrow":
            detail += " Burrow posts its verdicts here. Read them at / in a browser, or at /api/v1/groups in a program."
        return _respond(Problem("method_not_allowed", detail, headers=[("Allow", allowed)]))
    code = _BY_STATUS.get(error.code or 0, "bad_request" if (error.code or 0) < 500 else "internal_error")  # noqa: PLR2004
    return _respond(Problem(code, CODES[code].remedy))


def _log_unavailable(error: LogUnavailableError) -> Response:
    # The text may name a file or the database's host, so only readers see the text.
    code = "unconfirmed" if isinstance(error, UnconfirmedError) else "log_unavailable"
    return _respond(Problem(code, str(error) if g.get(FOR_READERS) else CODES[code].remedy))


def _unexpected(_error: Exception) -> Response:
    _log.exception("request failed", code="internal_error", method=request.method, path=request.path[:200])
    return _respond(Problem("internal_error", CODES["internal_error"].remedy))
