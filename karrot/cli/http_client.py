"""Sends one HTTP request to Karrot and returns the answer, or the reason why there is none."""

import ssl
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib3.exceptions import HTTPError

_TIMEOUT_SECONDS = 5
_MOST_BYTES = 64 * 1024


class HttpAnswer(NamedTuple):
    """An HTTP status and a body. Status 0 means that there was no answer. Then the body is the reason."""

    status: int
    body: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
    """Post JSON as Burrow does. Do not follow a redirect, because Burrow would follow a redirect without the body."""
    from urllib3.exceptions import HTTPError

    from karrot.http.pool import open_pool

    try:
        with open_pool(url, headers={"Content-Type": "application/json", **headers}) as pool:
            response = pool.request("POST", url, body=body, preload_content=False)
            with response:
                return _answer(response.status, response.read(_MOST_BYTES))
    except HTTPError as error:
        return HttpAnswer(0, _why(url, _cause(error)))


def fetch(url: str) -> HttpAnswer:
    """Get an address of this machine, without a proxy and without a check of the certificate.

    A health check runs every few seconds. So this function does not load urllib3, which takes longer than the request.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    if parts.scheme == "https":
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 (own host)
        connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS, context=context)
    try:
        connection.request("GET", parts.path or "/")
        response = connection.getresponse()
        return _answer(response.status, response.read(_MOST_BYTES))
    except (OSError, HTTPException, UnicodeError) as error:
        return HttpAnswer(0, _why(url, error))
    finally:
        connection.close()


def _answer(status: int, body: bytes) -> HttpAnswer:
    return HttpAnswer(status, body.decode(errors="replace"))


def _cause(error: "HTTPError") -> Exception:
    """The error of the socket or of TLS that urllib3 reports as an error of its own."""
    from urllib3.exceptions import NewConnectionError, ProxyError
    from urllib3.exceptions import TimeoutError as NoAnswerInTime

    if isinstance(error, NoAnswerInTime) and not isinstance(error, NewConnectionError):
        return TimeoutError()
    if isinstance(error, ProxyError):
        return error
    inner = [each for each in (error.__cause__, *error.args) if isinstance(each, OSError | HTTPException)]
    return inner[0] if inner else error


def _why(url: str, error: Exception) -> str:
    where = urlsplit(url).netloc
    match error:
        case ConnectionRefusedError():
            return f"nothing listens at {where} (connection refused): check that Karrot runs and that the port is right"
        case TimeoutError():
            return f"no answer from {where} within {_TIMEOUT_SECONDS} seconds, the time that Burrow waits"
        case ssl.SSLCertVerificationError():
            return f"this machine does not trust the certificate of {where}: {error.verify_message}"
        case ssl.SSLError() if error.reason == "WRONG_VERSION_NUMBER":
            return f"{where} does not use TLS: try http://{where}"
        case ConnectionResetError() | BadStatusLine() if not url.startswith("https:"):
            return f"{where} closed the connection without an answer: if it uses TLS, try https://{where}"
        case _:
            return f"no answer from {where}: {error or type(error).__name__}"
