"""Calls Burrow's REST API v3, with one method for each call that Karrot makes."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct
from urllib3 import BaseHTTPResponse, PoolManager
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as NoAnswerInTime

from karrot.burrow.payload import decode, parse_rest
from karrot.burrow.wire import MalformedPayload
from karrot.event import LagEvent, Status
from karrot.http.pool import TIMEOUT_S, open_pool

T = TypeVar("T")
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
    """Burrow does not know this path: it is too old, or the URL is not its root. This says nothing about a group."""


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
    """The connection was refused or broke. Burrow may be restarting, so another try may succeed."""


def wall_ms() -> int:
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


class Reply(Struct):
    """The fields of every reply. A refusal has no other fields."""

    error: bool = False
    message: str = ""


class ZooKeeperConfig(Struct, frozen=True, rename="kebab"):
    """``[zookeeper]``."""

    servers: tuple[str, ...] | None = None


class MainConfig(Struct, frozen=True):
    """The part of ``/v3/config`` that Karrot reads."""

    zookeeper: ZooKeeperConfig


class ClientProfile(Struct, frozen=True, rename="kebab"):
    """One ``[client-profile.X]``. The name is ``""`` if the module uses no profile."""

    name: str = ""
    client_id: str = ""
    kafka_version: str = ""


class ClusterModule(Struct, frozen=True, rename="kebab"):
    """One ``[cluster.X]``. Times are in seconds."""

    class_name: str
    servers: tuple[str, ...] | None = None
    client_profile: ClientProfile | None = None
    topic_refresh: int = 0
    offset_refresh: int = 0


class StorageModule(Struct, frozen=True, rename="kebab"):
    """One ``[storage.X]``. Times are in seconds. Before v1.3.5, the allowlist was called whitelist."""

    class_name: str
    intervals: int = 0
    min_distance: int = 0
    expire_group: int = 0
    group_allowlist: str | None = None
    group_whitelist: str | None = None


class ConsumerModule(Struct, frozen=True, rename="kebab"):
    """One ``[consumer.X]``. Before v1.3.5, the allowlist was called whitelist."""

    class_name: str
    cluster: str = ""
    servers: tuple[str, ...] | None = None
    client_profile: ClientProfile | None = None
    start_latest: bool = False
    group_allowlist: str | None = None
    group_whitelist: str | None = None


class EvaluatorModule(Struct, frozen=True, rename="kebab"):
    """One ``[evaluator.X]``. Times are in seconds."""

    class_name: str
    expire_cache: int = 0


class NotifierModule(Struct, frozen=True, rename="kebab"):
    """One ``[notifier.X]`` of any class. Times are in seconds.

    Burrow reports ``url_*``, ``method_*`` and ``timeout`` for the class ``http``. Of the classes ``slack`` and
    ``email``, this type has only the field ``timeout``. Before v1.3.5, the allowlist was called whitelist.
    """

    class_name: str
    interval: int = 0
    threshold: int = 0
    send_close: bool = False
    template_open: str = ""
    template_close: str = ""
    extra: dict[str, str] | None = None
    timeout: int | None = None
    url_open: str | None = None
    url_close: str | None = None
    method_open: str | None = None
    method_close: str | None = None
    noverify: str | None = None
    group_allowlist: str | None = None
    group_whitelist: str | None = None


class ModuleReply(Struct, Generic[T]):
    """``/v3/config/<coordinator>/X``."""

    module: T


_UNKNOWN_CALL = "invalid request type"
_OK, _NOT_FOUND = 200, 404
_REDIRECTS, _SERVER_FAULTS = range(300, 400), range(500, 600)

_REPLY = msgspec.json.Decoder(Reply)


class Burrow:
    """A client for one Burrow, with the URL of its HTTP server, such as ``http://burrow:8000``.

    Every method sends one request (see `Asking` for timeouts and retries). A failure raises `BurrowError` or a
    subclass: `Unavailable` (no answer, or 5xx), `NotFound`, `UnknownCall` (an older Burrow), `Unaddressable` or
    `Unreadable`. The client sorts lists, because Burrow's order is random. Several threads may use the client.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 5.0,
        asking: Asking | None = None,
        now_ms: WallMs = wall_ms,
    ) -> None:
        self.url = url.rstrip("/")
        self._asking = asking or Asking(timeout_s=timeout_s)
        self._pool = self._asking.pool(self.url)
        self._now_ms = now_ms

    def close(self) -> None:
        self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- clusters and topics ---

    def clusters(self) -> tuple[str, ...]:
        """The names of the clusters, in lower case as Burrow writes them."""
        return self._names("clusters", "kafka")

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics of a cluster. The list is empty for some seconds after Burrow's start."""
        return self._names("topics", "kafka", cluster, "topic")

    # --- consumer groups ---

    def consumers(self, cluster: str) -> tuple[str, ...]:
        """The groups of a cluster. The list is empty for some seconds after Burrow's start."""
        return self._names("consumers", "kafka", cluster, "consumer")

    def status(self, cluster: str, group: str) -> LagEvent:
        """The verdict on a group. It lists only the partitions worse than OK. See also `lag`."""
        return self._verdict(cluster, group, "status")

    def lag(self, cluster: str, group: str) -> LagEvent:
        """The verdict on a group with all its partitions, in the order of topics and partition numbers.

        The event's time of observation is the start of the request. A verdict from Burrow's cache is up to
        ``expire-cache`` (10 s) older. A request for an expired group makes Burrow forget the group. Raises `NotFound`
        for an unknown group.
        """
        event = self._verdict(cluster, group, "lag")
        return event._replace(partitions=tuple(sorted(event.partitions, key=lambda one: (one.topic, one.partition))))

    # --- configuration ---

    def config_main(self) -> MainConfig:
        """The sections that are not modules."""
        return self._read(MainConfig, "config")

    def modules(self, coordinator: str) -> tuple[str, ...]:
        """The names of a coordinator's modules. `clusters` returns the clusters in Burrow's storage instead."""
        return self._names("modules", "config", coordinator)

    def module(self, kind: type[T], coordinator: str, name: str) -> T:
        """One module. Burrow does not report all settings of a notifier (see `NotifierModule`)."""
        reply: type[ModuleReply[T]] = ModuleReply[kind]  # type: ignore[valid-type]  # a value here
        return self._read(reply, "config", coordinator, name).module

    # --- health ---

    def ready(self) -> bool:
        """Whether Burrow has started all its parts. Its lists may still be empty. Burrow has this call since v1.3.5."""
        answer = self._ask("burrow", "admin", "ready")
        if answer.body not in (b"GOOD", b"READY", b"STARTING"):
            raise _refusal(answer)
        return answer.body == b"READY"

    # --- one request ---

    def _verdict(self, cluster: str, group: str, kind: str) -> LagEvent:
        answer = self._ask("v3", "kafka", cluster, "consumer", group, kind)
        if answer.status not in (_OK, _NOT_FOUND) or _error_message(answer) is not None:
            raise _refusal(answer)
        event = _understood(answer, lambda body: parse_rest(body, observed_at_ms=answer.asked_at_ms))
        if event.status is Status.NOTFOUND:
            raise NotFound(answer.url, "Burrow does not know the group")
        if _as_go_writes(event.cluster, event.consumer) != _as_go_writes(cluster, group):
            raise Unreadable(answer.url, f"the answer is about {event.consumer!a} in {event.cluster!a}")
        return event

    def _names(self, field: str, *path: str) -> tuple[str, ...]:
        reply = self._read(msgspec.defstruct("Reply", [(field, list[str] | None)]), *path)
        return tuple(sorted(getattr(reply, field) or ()))

    def _read(self, kind: type[T], *path: str) -> T:
        return _understood(self._get(*path), lambda body: decode(body, msgspec.json.Decoder(kind)))

    def _get(self, *path: str) -> Answer:
        answer = self._ask("v3", *path)
        if answer.status != _OK:
            raise _refusal(answer)
        return answer

    def _ask(self, *path: str) -> Answer:
        return self._asking.get(self._pool, self._address(path), self._now_ms)

    def _address(self, path: tuple[str, ...]) -> str:
        address = "/".join((self.url, *(_escaped(part) for part in path)))
        # Burrow splits a path after decoding it.
        if any("/" in part for part in path):
            raise Unaddressable(address, 'a request to Burrow cannot contain a name with "/" in it')
        if not path[-1]:
            raise Unaddressable(address, "a request to Burrow cannot contain a name that is empty")
        return address


def _escaped(name: str) -> str:
    """A name as one part of a path. Bytes that are not UTF-8, for example from a command line, are sent unchanged."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="", errors="surrogateescape")


def _as_go_writes(*names: str) -> list[str]:
    """Names as Burrow writes them in JSON. Each byte that is not UTF-8 is replaced by U+FFFD."""
    return [re.sub("[\ud800-\udfff]", "\ufffd", name) for name in names]


def _understood(answer: Answer, read: Callable[[bytes], T]) -> T:
    try:
        return read(answer.body)
    except MalformedPayload as error:
        if _error_message(answer) is not None:
            raise _refusal(answer) from error
        raise Unreadable(answer.url, f"the answer is not Burrow's: {error}") from error


def _error_message(answer: Answer) -> str | None:
    """Burrow's error message. ``None`` if the answer is something else."""
    try:
        reply = decode(answer.body, _REPLY)
    except MalformedPayload:
        return None
    return reply.message if reply.error else None


def _refusal(answer: Answer) -> BurrowError:
    message = _error_message(answer)
    said = shown(answer.body if message is None else message)
    if answer.status in _SERVER_FAULTS:
        return Unavailable(answer.url, f"HTTP {answer.status}, {said}")
    if answer.status in _REDIRECTS:
        return Unreadable(answer.url, f"HTTP {answer.status}, a redirect to {shown(answer.location)}: use that URL")
    if message is None:
        return Unreadable(answer.url, f"HTTP {answer.status}, which is not an answer of Burrow: {said}")
    if message == _UNKNOWN_CALL:
        return UnknownCall(answer.url, f"no such call ({said}): Burrow is too old, or the URL is not its root")
    kind = NotFound if answer.status == _NOT_FOUND else BurrowError
    return kind(answer.url, f"HTTP {answer.status}, Burrow says {said}")
