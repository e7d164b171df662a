"""Calls Burrow's REST API v3, with one method for each call that Karrot makes."""

import re
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import msgspec

from karrot.burrow.client import replies
from karrot.burrow.client.http import (
    Answer,
    Asking,
    BurrowError,
    NotFound,
    Unaddressable,
    Unavailable,
    UnknownCall,
    Unreadable,
    WallMs,
    shown,
    wall_ms,
)
from karrot.burrow.payload import decode, parse_rest
from karrot.burrow.wire import MalformedPayload
from karrot.event import LagEvent, Status

T = TypeVar("T")

_UNKNOWN_CALL = "invalid request type"
_OK, _NOT_FOUND = 200, 404
_REDIRECTS, _SERVER_FAULTS = range(300, 400), range(500, 600)

_REPLY = msgspec.json.Decoder(replies.Reply)
_CONSUMER = msgspec.json.Decoder(replies.ConsumerReply)


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
        """Close the open connections."""
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
        return _sorted(self._read(replies.ClustersReply, "kafka").clusters)

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics of a cluster. The list is empty for some seconds after Burrow's start."""
        return _sorted(self._read(replies.TopicsReply, "kafka", cluster, "topic").topics)

    # --- consumer groups ---

    def consumers(self, cluster: str) -> tuple[str, ...]:
        """The groups of a cluster. The list is empty for some seconds after Burrow's start."""
        return _sorted(self._read(replies.ConsumersReply, "kafka", cluster, "consumer").consumers)

    def consumer(self, cluster: str, group: str) -> dict[str, tuple[replies.StoredPartition, ...]]:
        """Everything that Burrow stores about a group: the partitions of each topic, by number."""
        answer = self._get("kafka", cluster, "consumer", group)
        return _understood(answer, lambda body: replies.stored(decode(body, _CONSUMER)))

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

    def config_main(self) -> replies.MainConfig:
        """The sections that are not modules."""
        return self._read(replies.MainConfig, "config")

    def modules(self, coordinator: str) -> tuple[str, ...]:
        """The names of a coordinator's modules. `clusters` returns the clusters in Burrow's storage instead."""
        return _sorted(self._read(replies.ModulesReply, "config", coordinator).modules)

    def module(self, kind: type[T], coordinator: str, name: str) -> T:
        """One module. Burrow does not report all settings of a notifier (see `NotifierModule`)."""
        reply: type[replies.ModuleReply[T]] = replies.ModuleReply[kind]  # type: ignore[valid-type]  # a value here
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


def _sorted(names: list[str] | None) -> tuple[str, ...]:
    return tuple(sorted(names or ()))


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
