"""Parses the JSON replies of REST v3 (``core/internal/httpserver/structs.go``, v1.0.0 to v1.9.5).

A list that Burrow does not have is ``null`` in none of its releases, but nothing depends on that. Unknown keys are
ignored.
"""

from dataclasses import dataclass

from msgspec import Struct, field

from karrot.burrow.decoding import wrong
from karrot.burrow.wire import UINT64_MAX, CommitJson, Int64, UInt64
from karrot.event import OffsetSample


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """What Burrow holds of one partition of a group: its window, oldest first.

    ``offsets`` has one slot per interval, ``None`` where none was stored yet; it is empty where only siblings of the
    partition were seen.
    """

    offsets: tuple[OffsetSample | None, ...]
    owner: str
    client_id: str
    current_lag: int | None


class Reply(Struct):
    """What every reply has; of a refusal it is all."""

    error: bool = False
    message: str = ""


class ClustersReply(Struct):
    """``/v3/kafka``."""

    clusters: list[str] | None


class TopicsReply(Struct):
    """``/v3/kafka/C/topic``."""

    topics: list[str] | None


class OffsetsReply(Struct):
    """``/v3/kafka/C/topic/T``."""

    offsets: list[Int64] | None


class ConsumersReply(Struct):
    """``/v3/kafka/C/consumer`` and, since v1.1.0, ``/v3/kafka/C/topic/T/consumers``."""

    consumers: list[str] | None


class _Partition(Struct):
    """``current-lag`` has a hyphen here and here alone; ``client_id`` since v1.2.1."""

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
    offsets = tuple(None if commit is None else _sample(commit) for commit in said.offsets or ())
    return StoredPartition(offsets, said.owner or "", said.client_id or "", _uint64(said.current_lag, "current-lag"))


def _sample(said: CommitJson) -> OffsetSample:
    return OffsetSample(said.offset, said.timestamp, _uint64(said.lag, "lag"), said.observed_at)


def _uint64(value: int | None, name: str) -> int | None:
    if value is not None and value > UINT64_MAX:
        raise wrong(f"$.topics...{name}", f"Expected `int` <= {UINT64_MAX}")
    return value
