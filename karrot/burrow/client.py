"""Calls Burrow's REST API v3, with one method for each call. Before v1.3.5, its allowlists were named ``whitelist``."""

import re
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from karrot.burrow.payload import MalformedPayload, decode, parse_rest
from karrot.event import LagEvent, Status
from karrot.http_client import (
    REDIRECTS,
    SERVER_FAULTS,
    Answer,
    HttpClient,
    RequestFailed,
    Unavailable,
    Unreadable,
    shown,
)

T = TypeVar("T")


class NotFound(RequestFailed):
    """Burrow does not know the cluster, topic, group or module, or has forgotten it."""


class UnknownCall(RequestFailed):
    """Burrow does not know this path: Burrow is too old, or the URL is not Burrow's root. The group may still exist."""


class Unaddressable(RequestFailed):
    """Burrow's URLs cannot contain this name. No request was sent."""


class Reply(Struct):
    """The fields of every reply. An error reply has no other fields."""

    error: bool = False
    message: str = ""


class ZooKeeperConfig(Struct, frozen=True, rename="kebab"):
    """The section ``[zookeeper]``."""

    servers: tuple[str, ...] | None = None


class MainConfig(Struct, frozen=True):
    """The part of ``/v3/config`` that Karrot reads."""

    zookeeper: ZooKeeperConfig


class ClientProfile(Struct, frozen=True, rename="kebab"):
    """One section ``[client-profile.X]``. The name is ``""`` if the module uses no profile."""

    name: str = ""
    client_id: str = ""
    kafka_version: str = ""


class ClusterModule(Struct, frozen=True, rename="kebab"):
    """One section ``[cluster.X]``. Times are in seconds."""

    class_name: str
    servers: tuple[str, ...] | None = None
    client_profile: ClientProfile | None = None
    topic_refresh: int = 0
    offset_refresh: int = 0


class StorageModule(Struct, frozen=True, rename="kebab"):
    """One section ``[storage.X]``. Times are in seconds."""

    class_name: str
    intervals: int = 0
    min_distance: int = 0
    expire_group: int = 0


class ConsumerModule(Struct, frozen=True, rename="kebab"):
    """One section ``[consumer.X]``."""

    class_name: str
    cluster: str = ""
    servers: tuple[str, ...] | None = None
    client_profile: ClientProfile | None = None
    start_latest: bool = False


class EvaluatorModule(Struct, frozen=True, rename="kebab"):
    """One section ``[evaluator.X]``. Times are in seconds."""

    class_name: str
    expire_cache: int = 0


class NotifierModule(Struct, frozen=True, rename="kebab"):
    """One section ``[notifier.X]`` of any class. Times are in seconds.

    Burrow reports ``url_*``, ``method_*`` and ``timeout`` for the class ``http``. This type omits the fields of the
    classes ``slack`` and ``email``, except ``timeout``.
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
    group_allowlist: str | None = None
    group_whitelist: str | None = None


class ModuleReply(Struct, Generic[T]):
    """The reply to ``/v3/config/<coordinator>/X``."""

    module: T


_UNKNOWN_CALL = "invalid request type"
_OK, _NOT_FOUND = 200, 404

_REPLY = msgspec.json.Decoder(Reply)


class Burrow(HttpClient):
    """A client for one Burrow. Its URL is that of Burrow's HTTP server, such as ``http://burrow:8000``.

    Every method sends one request (see `Limits` for timeouts and retries). A failure raises `RequestFailed` or a
    subclass: `Unavailable` (no answer, or 5xx), `NotFound`, `UnknownCall` (an older Burrow), `Unaddressable` or
    `Unreadable`. The client sorts lists, because Burrow's order is random. Several threads may use the client.
    """

    # --- clusters and topics ---

    def clusters(self) -> tuple[str, ...]:
        """The names of the clusters, which Burrow writes in lower case."""
        return self._names("clusters", "kafka")

    def topics(self, cluster: str) -> tuple[str, ...]:
        """The topics of a cluster. The list is empty for some seconds after Burrow's start."""
        return self._names("topics", "kafka", cluster, "topic")

    # --- consumer groups ---

    def consumers(self, cluster: str) -> tuple[str, ...]:
        """The groups of a cluster. The list is empty for some seconds after Burrow's start."""
        return self._names("consumers", "kafka", cluster, "consumer")

    def status(self, cluster: str, group: str) -> LagEvent:
        """The verdict on a group, which lists only partitions worse than OK. See also `lag`."""
        return self._verdict(cluster, group, "status")

    def lag(self, cluster: str, group: str) -> LagEvent:
        """The verdict on a group, which lists all partitions, sorted by topic and partition number.

        The event's time of observation is the start of the request. A verdict from Burrow's cache can be up to
        ``expire-cache`` (10 s) older than this time. A request for an expired group makes Burrow forget the group.
        Raises `NotFound` for an unknown group.
        """
        event = self._verdict(cluster, group, "lag")
        return event._replace(partitions=tuple(sorted(event.partitions, key=lambda one: (one.topic, one.partition))))

    # --- configuration ---

    def config_main(self) -> MainConfig:
        """The sections of the configuration that are not modules."""
        return self._read(MainConfig, "config")

    def modules(self, coordinator: str) -> tuple[str, ...]:
        """The names of a coordinator's modules. `clusters` returns the clusters in Burrow's storage instead."""
        return self._names("modules", "config", coordinator)

    def module(self, kind: type[T], coordinator: str, name: str) -> T:
        """One module's settings. Burrow does not report all settings of a notifier (see `NotifierModule`)."""
        reply: type[ModuleReply[T]] = ModuleReply[kind]  # type: ignore[valid-type]  # `kind` is a value
        return self._read(reply, "config", coordinator, name).module

    # --- health ---

    def ready(self) -> bool | None:
        """Whether Burrow has started all its parts; ``None`` before v1.3.5. Burrow's lists may still be empty."""
        answer = self._ask("burrow", "admin", "ready")
        if answer.body in (b"GOOD", b"READY", b"STARTING"):
            return answer.body == b"READY"
        refusal = _refusal(answer)
        if isinstance(refusal, UnknownCall):
            return None
        raise refusal

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
        answer = self._ask("v3", *path)
        if answer.status != _OK:
            raise _refusal(answer)
        return _understood(answer, lambda body: decode(body, msgspec.json.Decoder(kind)))

    def _ask(self, *path: str) -> Answer:
        address = "".join(f"/{_escaped(part)}" for part in path)
        # Burrow splits a path after decoding it.
        if any("/" in part for part in path):
            raise Unaddressable(self.url + address, 'a request to Burrow cannot contain a name with "/" in it')
        if not path[-1]:
            raise Unaddressable(self.url + address, "a request to Burrow cannot contain a name that is empty")
        return self.get(address)


def _escaped(name: str) -> str:
    """Percent-encode a name as one segment of a path. Bytes that are not UTF-8 are sent unchanged."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="", errors="surrogateescape")


def _as_go_writes(*names: str) -> list[str]:
    """Return names as Burrow writes them in JSON: U+FFFD replaces each byte that is not UTF-8."""
    return [re.sub("[\ud800-\udfff]", "\ufffd", name) for name in names]


def _understood(answer: Answer, read: Callable[[bytes], T]) -> T:
    try:
        return read(answer.body)
    except MalformedPayload as error:
        if _error_message(answer) is not None:
            raise _refusal(answer) from error
        raise Unreadable(answer.url, f"the answer is not Burrow's: {error}") from error


def _error_message(answer: Answer) -> str | None:
    """Burrow's error message; ``None`` for any other answer."""
    try:
        reply = decode(answer.body, _REPLY)
    except MalformedPayload:
        return None
    return reply.message if reply.error else None


def _refusal(answer: Answer) -> RequestFailed:
    message = _error_message(answer)
    if answer.status in REDIRECTS or (message is None and answer.status in SERVER_FAULTS):
        return answer.refusal()
    said = shown(answer.body if message is None else message)
    if answer.status in SERVER_FAULTS:
        return Unavailable(answer.url, f"HTTP {answer.status}, {said}", answer.status)
    if message is None:
        return Unreadable(answer.url, f"HTTP {answer.status}, which is not an answer of Burrow: {said}")
    if message == _UNKNOWN_CALL:
        return UnknownCall(answer.url, f"no such call ({said}): Burrow is too old, or the URL is not its root")
    kind = NotFound if answer.status == _NOT_FOUND else RequestFailed
    return kind(answer.url, f"HTTP {answer.status}, Burrow says {said}")
