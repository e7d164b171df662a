"""Asks Burrow over HTTP, with limits of time and size and retries where they help; defines what can go wrong."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as NoAnswerInTime

WallMs = Callable[[], int]
"""Epoch milliseconds of the wall clock."""

_HEADERS = {"Accept": "application/json", "User-Agent": "karrot"}
_CHUNK_BYTES = 64 * 1024
_SHOWN = 200


class BurrowError(Exception):
    """A question that got no usable answer. ``url`` is what was asked, ``said`` what came of it."""

    def __init__(self, url: str, said: str) -> None:
        super().__init__(f"{url}: {said}")
        self.url = url
        self.said = said


class NotFound(BurrowError):  # noqa: N818 (an answer of Burrow's, by the name it has there)
    """Burrow is well and does not know the cluster, the topic, the group or the module (any more)."""


class Unavailable(BurrowError):  # noqa: N818 (says what Burrow is)
    """Nobody answered in time, or the answer was cut or 5xx: worth another try later."""


class UnknownCall(BurrowError):  # noqa: N818 (says what was asked)
    """Burrow has no such call: an old release, or a URL that is not its root. Says nothing of any group."""


class Unaddressable(BurrowError):  # noqa: N818 (says what the name is)
    """A name that Burrow's URLs cannot hold; nothing was asked."""


class Unreadable(BurrowError):  # noqa: N818 (says what the answer is)
    """Somebody answered, but not as Burrow does."""


def shown(text: str | bytes) -> str:
    """A foreign text as a sentence may quote it: one line, bounded, nothing a terminal obeys."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    plain = plain.strip()
    return ascii(plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}...")


class Answer(NamedTuple):
    """Whole, whatever its status. ``asked_at_ms`` is the start of the try that was answered."""

    url: str
    status: int
    body: bytes
    location: str
    asked_at_ms: int


class _Broken(Unavailable):
    """Refused, or hung up on: a moment later it may be well, as when Burrow restarts or drops an idle connection."""


def wall_ms() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Asking:
    """How Burrow is asked.

    ``timeout_s`` holds for the connection, for each wait on it and for the whole body. A try that was refused or hung
    up on is repeated ``retries`` times, after ``backoff_s``, twice that and so on. One that took too long is not:
    Burrow may still be at it. Up to ``connections`` are kept: as many threads can ask at once without opening new ones.
    """

    timeout_s: float = 5.0
    retries: int = 2
    backoff_s: float = 0.1
    max_bytes: int = 64 * 1024 * 1024
    connections: int = 8
    pause: Callable[[float], object] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def pool(self) -> PoolManager:
        """Connections that several threads may share. No proxy is used, whatever the environment says."""
        return PoolManager(maxsize=self.connections, headers=_HEADERS, retries=False, timeout=self.timeout_s)

    def get(self, pool: PoolManager, url: str, now_ms: WallMs) -> Answer:
        """The answer to a GET. Raises `Unavailable`, or `Unreadable` for more than ``max_bytes``."""
        for tried in range(self.retries):
            try:
                return self._once(pool, url, now_ms)
            except _Broken:
                self.pause(self.backoff_s * 2**tried)
        return self._once(pool, url, now_ms)

    def _once(self, pool: PoolManager, url: str, now_ms: WallMs) -> Answer:
        asked_at_ms = now_ms()
        try:
            response = pool.request("GET", url, preload_content=False, redirect=False)
            body = self._body(response, url)
        except HTTPError as error:
            raise self._unavailable(error, url) from error
        return Answer(url, response.status, body, response.headers.get("Location", ""), asked_at_ms)

    def _body(self, response: BaseHTTPResponse, url: str) -> bytes:
        """The whole body; a connection on which some of it is left is closed."""
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
                return Unavailable(url, f"it cannot be asked: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """What the system said, where it was the system that failed."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return shown(str(cause or error))
