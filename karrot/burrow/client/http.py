"""Sends requests with limits of time and size and with retries, and defines the exceptions of Burrow's client."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as NoAnswerInTime

from karrot.http.pool import TIMEOUT_S, open_pool

WallMs = Callable[[], int]
"""Epoch milliseconds of the wall clock."""

_HEADERS = {"Accept": "application/json", "User-Agent": "karrot"}
_CHUNK_BYTES = 64 * 1024
_SHOWN = 200


class BurrowError(Exception):
    """A request without a usable answer. ``url`` is the URL of the request, ``said`` is the reason."""

    def __init__(self, url: str, said: str) -> None:
        super().__init__(f"{url}: {said}")
        self.url = url
        self.said = said


class NotFound(BurrowError):  # noqa: N818 (Burrow's own name for this answer)
    """Burrow answers, but does not know the cluster, the topic, the group or the module, or no longer knows it."""


class Unavailable(BurrowError):  # noqa: N818 (the name describes Burrow)
    """No answer came in time, or the answer was incomplete or had a status of 5xx. A later try may succeed."""


class UnknownCall(BurrowError):  # noqa: N818 (the name describes the request)
    """Burrow does not know this path. Burrow is an old release, or the configured URL is not the root of its API.

    This error says nothing about a group.
    """


class Unaddressable(BurrowError):  # noqa: N818 (the name describes the group's name)
    """Burrow's URLs cannot contain this name. No request was sent."""


class Unreadable(BurrowError):  # noqa: N818 (the name describes the answer)
    """The answer does not have a form that Burrow sends."""


def shown(text: str | bytes) -> str:
    """Make a text from outside safe to quote in a message: one line, limited in length, without control characters."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    plain = plain.strip()
    return ascii(plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}...")


class Answer(NamedTuple):
    """A complete answer with any status. ``asked_at_ms`` is the start of the attempt that was answered."""

    url: str
    status: int
    body: bytes
    location: str
    asked_at_ms: int


class _Broken(Unavailable):
    """The connection was refused or broke.

    Another try after a short time may succeed: Burrow may be restarting, or may have closed an idle connection.
    """


def wall_ms() -> int:
    """The current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Asking:
    """The limits and retries of requests.

    ``timeout_s`` limits the time to open the connection, each wait for data, and the time to read the whole body. If a
    connection is refused or breaks, the request is repeated up to ``retries`` times. The first pause is ``backoff_s``,
    and each further pause is twice as long. A request that timed out is not repeated, because Burrow may still be
    working on it. Up to ``connections`` connections stay open for as many threads.
    """

    timeout_s: float = TIMEOUT_S
    retries: int = 2
    backoff_s: float = 0.1
    max_bytes: int = 64 * 1024 * 1024
    connections: int = 8
    pause: Callable[[float], object] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def pool(self, url: str) -> PoolManager:
        """Open a pool of connections to the host of ``url``, which several threads may share."""
        return open_pool(url, headers=_HEADERS, timeout_s=self.timeout_s, connections=self.connections)

    def get(self, pool: PoolManager, url: str, now_ms: WallMs) -> Answer:
        """Send a GET request. Raises `Unavailable`, or `Unreadable` for an answer larger than ``max_bytes``."""
        for tried in range(self.retries):
            try:
                return self._once(pool, url, now_ms)
            except _Broken:
                self.pause(self.backoff_s * 2**tried)
        return self._once(pool, url, now_ms)

    def post(self, pool: PoolManager, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a POST request once. Raises what `get` raises."""
        return self._once(pool, url, wall_ms, method="POST", body=body, headers=headers)

    def _once(self, pool: PoolManager, url: str, now_ms: WallMs, *, method: str = "GET", **sent: Any) -> Answer:
        asked_at_ms = now_ms()
        try:
            response = pool.request(method, url, preload_content=False, **sent)
            body = self._body(response, url)
        except HTTPError as error:
            raise self._unavailable(error, url) from error
        return Answer(url, response.status, body, response.headers.get("Location", ""), asked_at_ms)

    def _body(self, response: BaseHTTPResponse, url: str) -> bytes:
        """Read the whole body. If it cannot be read completely, the connection is closed."""
        deadline = self.monotonic() + self.timeout_s
        body = bytearray()
        with response:
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > self.max_bytes:
                    raise Unreadable(url, f"the answer is larger than {self.max_bytes} bytes")
                if self.monotonic() > deadline:
                    raise Unavailable(url, f"the answer is not complete after {self.timeout_s:g} s")
            response.release_conn()
        return bytes(body)

    def _unavailable(self, error: HTTPError, url: str) -> Unavailable:
        match error:
            case NewConnectionError():
                return _Broken(url, f"no connection: {_reason(error)}")
            case NoAnswerInTime():
                return Unavailable(url, f"no answer within {self.timeout_s:g} s")
            case SSLError():
                return Unavailable(url, f"no secure connection: {_reason(error)}")
            case ProtocolError():
                return _Broken(url, f"the connection broke: {_reason(error)}")
            case _:
                return Unavailable(url, f"the request failed: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The message of the cause. For an error of the operating system, the system's message."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return shown(str(cause or error))
