"""What the commands ask of a running Karrot: whether it is well, and whether it takes an event."""

import base64
import ssl
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from karrot.burrow.payload import to_wire
from karrot.event import LagEvent, OffsetSample, PartitionLag

__all__ = ["CLUSTER", "Answer", "basic", "bearer", "fetch", "group", "post", "sample"]

CLUSTER = "karrot-sample"
TIMEOUT_SECONDS = 5
_COMMIT_EVERY_MS = 60_000
_WINDOW_MS = 9 * _COMMIT_EVERY_MS


class Answer(NamedTuple):
    """A status and a body, or (status 0) the sentence that says why there is none."""

    status: int
    body: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Post JSON as Burrow does, but without following a redirect: Burrow would lose the body on its way."""
    return _ask("POST", url, body, {"Content-Type": "application/json", **headers})


def fetch(url: str) -> Answer:
    """Get an address of this machine: no proxy is asked, and a certificate may be of another name."""
    return _ask("GET", url, None, {}, verify=False)


def basic(user: str, password: str) -> dict[str, str]:
    """The header of Basic authentication."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    """The header of Bearer authentication. Raises `ValueError` for a text that no header can hold."""
    if not (token.isascii() and token.isprintable()):
        raise ValueError("a Bearer token must be printable ASCII")
    return {"Authorization": f"Bearer {token}"}


def group(number: int) -> str:
    """The name of a made-up group."""
    return f"sample-group-{number}"


def sample(status: str, number: int, now_ms: int) -> bytes:
    """A body as Burrow v1.9.5 posts it for a made-up group: ten commits, two of six partitions bad if not OK."""
    bad = () if status == "OK" else (_partition(0, status, now_ms), _partition(3, status, now_ms))
    largest = bad[0] if bad else _partition(0, status, now_ms)
    event = LagEvent(
        cluster=CLUSTER,
        consumer=group(number),
        status_text=status,
        total_lag=sum(each.current_lag or 0 for each in bad or (largest,)),
        observed_at_ms=now_ms,
        incident_id=str(uuid.uuid4()) if bad else None,
        incident_start=datetime.fromtimestamp((now_ms - _WINDOW_MS) // 1000, UTC) if bad else None,
        complete=1.0,
        partition_count=6,
        max_lag=largest,
        partitions=bad,
    )
    return to_wire(event)


def _partition(number: int, status: str, now_ms: int) -> PartitionLag:
    """WARN: the lag grows while offsets move; ERR: they do not move (STALL)."""
    read = {"OK": 900, "WARN": 600, "ERR": 0}[status]
    return PartitionLag(
        topic="sample-topic",
        partition=number,
        status_text="STALL" if status == "ERR" else status,
        current_lag=1000 - read,
        start=_commit(now_ms - _WINDOW_MS - 1000, offset=5000, lag=100),
        end=_commit(now_ms - 1000, offset=5000 + read, lag=1000 - read),
        owner="/127.0.0.1",
        client_id="karrot-send-sample",
        complete=1.0,
    )


def _commit(at_ms: int, *, offset: int, lag: int) -> OffsetSample:
    return OffsetSample(offset, at_ms, lag, at_ms // 1000 * 1000)


def _ask(method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, verify: bool = True) -> Answer:
    connection = _connection(url, verify=verify)
    try:
        connection.request(method, urlsplit(url).path or "/", body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, response.read(64 * 1024).decode(errors="replace"))
    except (OSError, HTTPException, UnicodeError) as error:
        return Answer(0, _why(url, error))
    finally:
        connection.close()


def _connection(url: str, *, verify: bool) -> HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme != "https":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    context = ssl.create_default_context() if verify else ssl._create_unverified_context()  # noqa: S323, SLF001 (own host)
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS, context=context)


def _why(url: str, error: Exception) -> str:
    where = urlsplit(url).netloc
    match error:
        case ConnectionRefusedError():
            return f"nothing listens at {where} (connection refused): is Karrot running, and is the port right?"
        case TimeoutError():
            return f"no answer from {where} within {TIMEOUT_SECONDS} seconds, which is as long as Burrow waits"
        case ssl.SSLCertVerificationError():
            return f"the certificate of {where} is not trusted here: {error.verify_message}"
        case ssl.SSLError() if error.reason == "WRONG_VERSION_NUMBER":
            return f"{where} does not speak TLS: is its address http://{where}?"
        case ConnectionResetError() | BadStatusLine() if not url.startswith("https:"):
            return f"{where} hung up without an answer: if it speaks TLS, its address is https://{where}"
        case _:
            return f"{where} cannot be asked: {error or type(error).__name__}"
