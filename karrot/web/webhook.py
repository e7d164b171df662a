"""Stores the events that Burrow posts to ``/burrow``. The answer 202 means that the event is stored.

The headers are checked before the body is read. Karrot's server calls `admit`, `begin` and `refusal` without Flask,
because Flask's request context costs more than an event.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

import msgspec
import structlog
from flask import Blueprint, Response, request
from werkzeug.exceptions import MethodNotAllowed

from karrot.burrow.payload import MalformedPayload
from karrot.event import SOURCE_HEADER, Source
from karrot.eventlog.base import LogUnavailableError, OverloadedError, UnconfirmedError
from karrot.intake import PendingAppend
from karrot.runbooks_and_remedies import CODES
from karrot.web import auth
from karrot.web.context import RESPONSE_HEADERS, WebContext, web_context
from karrot.web.error_answers import RETRY_AFTER, Problem

LARGE_BODY = 1024 * 1024
"""Bodies with more bytes are parsed one at a time, because parsed JSON can take 25 times its size in memory."""

METHODS = ("POST", "PUT", "DELETE")
_PATH = "/burrow"
_SOURCE = SOURCE_HEADER.lower()
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})(?:\r\n|$)", re.IGNORECASE)
_MOST_DIGITS = 20


class IncompleteRequest(Exception):  # noqa: N818 - it ends a request, not the program
    """A request did not arrive completely before its timeout."""


class RefusedHead(Exception):  # noqa: N818 - it ends a request, not the program
    """The headers of a request are invalid or too long. ``status`` is the HTTP status of the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


_CODES_OF: dict[type[Exception], str] = {
    RefusedHead: "bad_request",
    IncompleteRequest: "incomplete_body",
    UnconfirmedError: "unconfirmed",
    LogUnavailableError: "log_unavailable",
    OverloadedError: "overloaded",
}

_log = structlog.get_logger(__name__)

routes = Blueprint("webhook", __name__)


class _Failed(Exception):  # noqa: N818 - it carries the body of a failed event to the place that counts it
    """Karrot failed to handle ``body``. ``__cause__`` is the error."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class Answer(NamedTuple):
    """An answer to a posted event, without the header Content-Length."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


ACCEPTED = Answer(202, [("Content-Type", "application/json")], b'{"status":"accepted"}')
"""The answer to a stored event."""


@routes.route(_PATH, methods=["GET", "HEAD", "OPTIONS", "PATCH", "TRACE"], provide_automatic_options=False)
def refuse_method() -> NoReturn:
    """Explain the URL to a person. Karrot's server takes events before they reach Flask."""
    raise MethodNotAllowed(METHODS)


@routes.after_app_request
def count_post_to_wrong_path(response: Response) -> Response:
    """Count and log an event that was posted to a wrong path."""
    code = {404: "not_found", 405: "method_not_allowed"}.get(response.status_code)
    if code is not None and request.method in METHODS and request.routing_exception is not None:
        context = web_context()
        context.intake.refuse(code, "")
        if (skipped := context.log_turns.take(code, context.clock.boot_ms())) is not None:
            where = {"path": request.path[:200], "client": request.remote_addr, "problem": code, "skipped": skipped}
            _log.warning("a program posts to a wrong path instead of /burrow", code="wrong_path", **where)
    return response


def paths(context: WebContext) -> set[str]:
    """The paths of events, without and with the proxy's prefix."""
    return {_PATH, urlsplit(context.external_url or "").path.rstrip("/") + _PATH}


def is_whole_event(paths: set[str], received: bytes) -> bool:
    """Whether the bytes are exactly one request that posts an event."""
    head, _, body = received.partition(b"\r\n\r\n")
    method, _, rest = head.partition(b" ")
    length = _LENGTH.search(head)
    return (
        method.decode("latin-1") in METHODS
        and f"/{rest.partition(b' ')[0].decode('latin-1').strip('/')}" in paths
        and length is not None
        and int(length[1]) == len(body)
    )


def refusal(context: WebContext, error: Exception, client: str, *, counted: bool = True) -> Answer:
    """Make the answer to a refused request. Count the request, except if it certainly is no event."""
    problem = _problem(error)
    if counted:
        _count(context, problem, error, client)
    status = error.status if isinstance(error, RefusedHead) else problem.body.status
    headers = [("Content-Type", "application/problem+json"), *problem.headers, *RESPONSE_HEADERS.items()]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(RETRY_AFTER)
    return Answer(status, headers, msgspec.json.encode(msgspec.structs.replace(problem.body, status=status)))


def admit(context: WebContext, headers: Mapping[str, str]) -> int:
    """Check the headers (names in lower case), and return the body's length. Raises `Problem` to refuse the event."""
    auth.refuse_other_sites(headers.get, context.external_url)
    credentials = context.credentials()
    if (credentials.basic or credentials.bearer) and not auth.may_post(credentials, headers.get("authorization", "")):
        challenges = [("WWW-Authenticate", value) for value in auth.burrow_challenges(credentials)]
        raise Problem("unauthorized", "The credentials are missing or wrong.", headers=challenges)
    if headers.get("content-encoding", "").lower() not in ("identity", ""):
        raise Problem("unsupported_media_type", "The body has a Content-Encoding.")
    digits = headers.get("content-length", "")  # the server's parser accepts only digits, but thousands of zeros
    if not 0 < len(digits) <= _MOST_DIGITS or headers.get("transfer-encoding"):
        raise Problem("length_required", "The request has no Content-Length.")
    length = int(digits)
    if length > context.max_body:
        raise Problem("too_large", f"The body has {length} bytes; the limit is {context.max_body}.")
    return length


def begin(context: WebContext, headers: Mapping[str, str], body: bytes) -> PendingAppend:
    """Append an event. Raises `Problem`, `MalformedPayload` or the event log's errors."""
    # `admit` has checked the credentials, if any are set, so the header is trusted.
    source = Source.KAFKA if headers.get(_SOURCE, "") == Source.KAFKA.value else Source.WEBHOOK
    large = len(body) > LARGE_BODY
    # Parsed JSON can take 25 times its size in memory, so only one large body is parsed at a time.
    if large and not context.large_bodies.acquire(timeout=context.large_body_wait):
        raise OverloadedError("Karrot is still parsing other large bodies. Send the event again.")
    try:
        return context.intake.begin(body, source)
    except Exception as error:
        if isinstance(error, (MalformedPayload, *_CODES_OF)):
            raise
        raise _Failed(body) from error
    finally:
        if large:
            context.large_bodies.release()


def _problem(error: Exception) -> Problem:
    """Convert an error to a problem."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, MalformedPayload):
        return Problem(error.code, str(error), path=error.path)
    code = next((code for kind, code in _CODES_OF.items() if isinstance(error, kind)), None)
    if code is None or isinstance(error, LogUnavailableError):  # its text may name a file, or the database's host
        return Problem(code or "internal_error", CODES[code or "internal_error"].remedy)
    return Problem(code, str(error))


def _count(context: WebContext, problem: Problem, error: Exception, client: str) -> None:
    """Count a refused event. Log the refusal if the sender can fix the event, or if Karrot failed.

    Any client can cause such lines, so a worker logs ten of a code in a minute, and counts the others.
    """
    match error:
        case MalformedPayload():  # the intake has counted it and kept the body
            pass
        case _Failed():
            context.intake.refuse(problem.code, f"{type(error.__cause__).__name__}: {error.__cause__}", error.body)
        case _:
            context.intake.refuse(problem.code, problem.detail)
    if problem.code != "internal_error" and not isinstance(error, Problem | MalformedPayload):
        return
    if (skipped := context.log_turns.take(problem.code, context.clock.boot_ms())) is None:
        return
    if problem.code == "internal_error":
        _log.error("request failed", code=problem.code, path=_PATH, exc_info=error, skipped=skipped)
    else:
        reason = problem.detail[:500]
        _log.warning("event refused", code=problem.code, reason=reason, client=client, skipped=skipped)
