"""Takes the events that Burrow posts to ``/burrow``. The answer 202 means that the event is stored.

Limits are checked first. `worth_reading` uses only a request's headers to decide whether the server reads its body.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, NoReturn

import structlog
from flask import Blueprint, request

from karrot.burrow.wire import MalformedPayload
from karrot.event import SOURCE_HEADER, Source
from karrot.eventlog.base import LogUnavailableError, OverloadedError, UnconfirmedError
from karrot.server.inline_wsgi import DEFERS, PENDING
from karrot.server.request_completeness import RequestHead
from karrot.web import auth
from karrot.web.context import WebContext, web_context
from karrot.web.problems import Problem

LARGE_BODY = 1024 * 1024
"""Bodies with more bytes are parsed one at a time, because parsed JSON can take 25 times its size in memory."""

_PATH = "/burrow"
_METHODS = ("POST", "PUT", "DELETE")
_FAILED = "karrot.failed"
_BODY = "karrot.body"
_SOURCE = f"HTTP_{SOURCE_HEADER.upper().replace('-', '_')}"
_CHUNK = 64 * 1024
_LONGEST_NUMBER = 4300
"""The most digits that Python converts to a number."""

_ACCEPTED = b'{"status":"accepted"}'
_ACCEPTED_HEADERS = (("Content-Type", "application/json"), ("Content-Length", str(len(_ACCEPTED))))
_CLOSE = ("Connection", "close")
"""The header of an answer that leaves a body unread. The client must not use the connection again."""

StartResponse = Callable[..., Any]
Application = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

_log = structlog.get_logger(__name__)

routes = Blueprint("webhook", __name__)


def worth_reading(context: WebContext, head: RequestHead) -> bool:
    """Whether the application will read the announced body. If not, it refuses the request by its headers alone."""
    return (
        head.path == _PATH
        and head.length is not None
        and head.length <= context.max_body
        and auth.may_post(context.credentials, head.authorization)
    )


def count_refusal(context: WebContext, head: RequestHead, code: str, detail: str) -> None:
    """Count an event that the server refused before the application got it. Other requests are not counted."""
    if head.path == _PATH:
        context.intake.refuse(code, detail)


class IntakeMiddleware:
    """WSGI middleware that takes events without Flask's request context. That context costs more than the event itself.

    A refused event goes on to Flask with the reason, and Flask answers the request.
    """

    def __init__(self, context: WebContext, application: Application) -> None:
        self._context = context
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Store an event, or pass the request on."""
        if environ["REQUEST_METHOD"] in _METHODS and f"/{environ['PATH_INFO'].strip('/')}" == _PATH:
            try:
                _take(self._context, environ)
            except Exception as error:  # noqa: BLE001 - Flask's handlers make an answer of any
                environ[_FAILED] = error
            else:
                start_response("202 ACCEPTED", [*_ACCEPTED_HEADERS])
                return [_ACCEPTED]
        return self._application(environ, start_response)


@routes.route(_PATH, methods=_METHODS, provide_automatic_options=False)
def receive() -> NoReturn:
    """Count the refused event, and answer with the reason."""
    context = web_context()
    error = request.environ[_FAILED]
    if isinstance(error, MalformedPayload):  # the intake has counted and kept the body
        _refuse(Problem(error.code, str(error), path=error.path))
    if isinstance(error, Problem):
        context.intake.refuse(error.code, error.detail)
        _refuse(error)
    # An unexpected error: Flask's error handler logs and answers it.
    context.intake.refuse("internal_error", f"{type(error).__name__}: {error}", request.environ.get(_BODY, b""))
    raise error


def _refuse(problem: Problem) -> NoReturn:
    _log.warning("event refused", code=problem.code, detail=problem.detail[:500], client=request.remote_addr)
    raise problem from None


# The functions below read the WSGI environment directly. With werkzeug's headers, an event would cost five times more.


def _take(context: WebContext, environ: dict[str, Any]) -> None:
    if not auth.may_post(context.credentials, environ.get("HTTP_AUTHORIZATION", "")):
        challenges = [("WWW-Authenticate", value) for value in auth.burrow_challenges(context.credentials)]
        raise Problem("unauthorized", "The credentials are missing or wrong.", headers=[*challenges, _CLOSE])
    length = _admitted_length(context.max_body, environ)
    body = environ[_BODY] = _read(context, environ["wsgi.input"], length)
    if length <= LARGE_BODY:
        _store(context, environ, body)
        return
    # Parsed JSON can take 25 times its size in memory, so only one large body is parsed at a time.
    if not context.large_bodies.acquire(timeout=context.large_body_wait):
        raise Problem("overloaded", "Karrot is still parsing other large bodies. Send the event again.")
    try:
        _store(context, environ, body)
    finally:
        context.large_bodies.release()


def _store(context: WebContext, environ: dict[str, Any], body: bytes) -> None:
    # If credentials are set, only a sender who knows them gets here.
    source = Source.KAFKA if environ.get(_SOURCE) == Source.KAFKA.value else Source.WEBHOOK
    try:
        pending = context.intake.begin(body, source)
        if DEFERS in environ:
            environ[PENDING] = pending
        else:
            pending.wait()
    except UnconfirmedError as error:
        raise Problem("unconfirmed", str(error)) from error
    except LogUnavailableError as error:
        raise Problem("log_unavailable", str(error)) from error
    except OverloadedError as error:
        raise Problem("overloaded", str(error)) from error


def _admitted_length(max_body: int, environ: Mapping[str, Any]) -> int:
    encoding = environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise Problem("unsupported_media_type", "The body has a Content-Encoding.", headers=[_CLOSE])
    digits = environ.get("CONTENT_LENGTH", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER
    if not is_number or "HTTP_TRANSFER_ENCODING" in environ:
        raise Problem("length_required", "The request has no Content-Length.", headers=[_CLOSE])
    length = int(digits)
    if length > max_body:
        detail = f"The body has {length} bytes; the limit is {max_body}."
        raise Problem("too_large", detail, headers=[_CLOSE])
    return length


def _read(context: WebContext, stream: IO[bytes], length: int) -> bytes:
    """Exactly ``length`` bytes of body. An incomplete body raises a problem and is never stored."""
    deadline = context.clock.boot_ms() + context.body_timeout * 1000
    pieces: list[bytes] = []
    missing = length
    while missing:
        if context.clock.boot_ms() > deadline:
            raise _incomplete(f"only {length - missing} of {length} bytes arrived within {context.body_timeout:g} s")
        try:  # the server's own stream: at the end it returns b"", while werkzeug's wrapper raises
            chunk = stream.read(min(_CHUNK, missing))
        except OSError as error:  # reset, or the socket's own timeout
            raise _incomplete(f"the connection failed: {type(error).__name__}") from error
        if not chunk:
            raise _incomplete(f"the connection ended after {length - missing} of {length} bytes")
        pieces.append(chunk)
        missing -= len(chunk)
    return b"".join(pieces)


def _incomplete(why: str) -> Problem:
    return Problem("incomplete_body", f"The body is incomplete: {why}.", headers=[_CLOSE])
