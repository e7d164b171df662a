"""Parses the JSON replies of REST v3 (``core/internal/httpserver/structs.go``, v1.0.0 to v1.9.5).

No release of Burrow sends ``null`` for an empty list, but this module accepts it. Unknown keys are ignored.

Burrow does not report its whole configuration (``config.go``). For a notifier, Burrow leaves out ``send-interval``,
``send-once``, ``group-denylist``, the headers, the user and the password. For an evaluator, Burrow leaves out
``allowed-lag`` and ``minimum-complete``. If a value is not set, Burrow reports its default, or else ``""``, ``0`` or
``false``. ``None`` means that this release, or this class of module, does not report the value.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct, field

from karrot.burrow.wire import UINT64_MAX, CommitJson, UInt64, wrong
from karrot.event import OffsetSample

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """The stored window of one partition of a group, as Burrow reports it, oldest commit first.

    ``offsets`` has one slot per interval. A slot without a commit is ``None``. ``offsets`` is empty if Burrow has seen
    only other partitions of the topic.
    """

    offsets: tuple[OffsetSample | None, ...]
    owner: str
    client_id: str
    current_lag: int | None


class Reply(Struct):
    """The fields of every reply. A refusal has no other fields."""

    error: bool = False
    message: str = ""


class ClustersReply(Struct):
    """``/v3/kafka``."""

    clusters: list[str] | None


class TopicsReply(Struct):
    """``/v3/kafka/C/topic``."""

    topics: list[str] | None


class ConsumersReply(Struct):
    """``/v3/kafka/C/consumer``."""

    consumers: list[str] | None


class _Partition(Struct):
    """One partition in `ConsumerReply`. Only here, ``current-lag`` has a hyphen. ``client_id`` exists since v1.2.1."""

    offsets: list[CommitJson | None] | None = None
    owner: str | None = None
    client_id: str | None = None
    current_lag: UInt64 | None = field(default=None, name="current-lag")


class ConsumerReply(Struct):
    """``/v3/kafka/C/consumer/G``."""

    topics: dict[str, list[_Partition | None]] | None


def stored(reply: ConsumerReply) -> dict[str, tuple[StoredPartition, ...]]:
    """The partitions of each topic, by their number. Raises `MalformedPayload` for a number beyond 64 bits."""
    return {
        topic: tuple(_stored(partition or _Partition()) for partition in partitions)
        for topic, partitions in (reply.topics or {}).items()
    }


def _stored(said: _Partition) -> StoredPartition:
    offsets = tuple(
        None
        if commit is None
        else OffsetSample(commit.offset, commit.timestamp, _uint64(commit.lag, "lag"), commit.observed_at)
        for commit in said.offsets or ()
    )
    return StoredPartition(offsets, said.owner or "", said.client_id or "", _uint64(said.current_lag, "current-lag"))


def _uint64(value: int | None, name: str) -> int | None:
    if value is not None and value > UINT64_MAX:
        raise wrong(f"$.topics...{name}", f"Expected `int` <= {UINT64_MAX}")
    return value


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


class ModulesReply(Struct):
    """``/v3/config/<coordinator>``."""

    modules: list[str] | None


class ModuleReply(Struct, Generic[T]):
    """``/v3/config/<coordinator>/X``."""

    module: T
