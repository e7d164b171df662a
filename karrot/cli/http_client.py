"""Sends one HTTP request to Karrot and returns the answer, or the reason why there is none."""

import ssl
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 5


class HttpAnswer(NamedTuple):
    """An HTTP status and a body. Status 0 means that there was no answer. Then the body is the reason."""

    status: int
    body: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
    """Post JSON as Burrow does. Do not follow a redirect, because Burrow would follow a redirect without the body."""
    return _ask("POST", url, body, {"Content-Type": "application/json", **headers})


def fetch(url: str) -> HttpAnswer:
    """Get an address of this machine, without a proxy and without a check of the certificate."""
    return _ask("GET", url, None, {}, verify=False)


def _ask(method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, verify: bool = True) -> HttpAnswer:
    connection = _connection(url, verify=verify)
    try:
        connection.request(method, urlsplit(url).path or "/", body, dict(headers))
        response = connection.getresponse()
        return HttpAnswer(response.status, response.read(64 * 1024).decode(errors="replace"))
    except (OSError, HTTPException, UnicodeError) as error:
        return HttpAnswer(0, _why(url, error))
    finally:
        connection.close()


def _connection(url: str, *, verify: bool) -> HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme != "https":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    context = ssl.create_default_context() if verify else ssl._create_unverified_context()  # noqa: S323, SLF001 (own host)
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS, context=context)


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
