"""Saves the rings, incidents and rebalance counts for a restart, in a file or in the event log."""

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from karrot.burrow.rules import DEFAULT_EXPIRE_GROUP, Window
from karrot.event import OffsetSample, OpenIncident, TopicPartition
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.locks import flush
from karrot.runbooks_and_remedies import WATCH
from karrot.watch.cluster_reader import Stability
from karrot.watch.rings import PolledLog, Ring, Rings, Uncommitted
from karrot.watch.verdicts_and_incidents import Incidents, Life

_VERSION = 2
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Memory:
    """The state that the next poll needs from earlier polls.

    ``judged`` are the groups that had a verdict. The deletion of such a group needs an event, even without offsets.
    ``lists`` has the filter of the group lists, and the times in ms of the first and the newest complete list.
    ``deleted`` has the times of the newest deletions.
    """

    rings: Rings = field(default_factory=Rings)
    incidents: Incidents = field(default_factory=Incidents)
    stability: dict[str, Stability] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    lives: dict[str, Life] = field(default_factory=dict)
    lists: tuple[str, int, int] = ("", 0, 0)
    deleted: dict[str, int] = field(default_factory=dict)

    def forget(self, group: str) -> None:
        self.rings.forget(group)
        self.incidents.open.pop(group, None)
        self.stability.pop(group, None)
        self.judged.discard(group)
        self.lives.pop(group, None)


class Keeper(NamedTuple):
    """Loads and saves bytes for the next start. Both functions can raise ``OSError`` or the event log's errors."""

    recall: Callable[[], bytes | None]
    remember: Callable[[bytes], None]


def file_keeper(path: Path) -> Keeper:
    """Keep the bytes in one file with mode 0600. A save replaces the whole file."""

    def remember(value: bytes) -> None:
        written = path.with_name(f"{path.name}.new")
        written.touch(0o600)
        written.write_bytes(value)
        flush(written)
        written.replace(path)
        flush(path.parent)

    return Keeper(lambda: path.read_bytes() if path.exists() else None, remember)


def log_keeper(log: EventLog, cluster: str) -> Keeper:
    """Keep the bytes in the event log, where the next leader finds them."""
    name = f"rings {cluster}"
    return Keeper(partial(log.recall, WATCH, name), partial(log.remember, WATCH, name))


class _Kept(msgspec.Struct, array_like=True):
    version: int
    cluster: str
    saved_at_ms: int
    intervals: int
    order: int
    logs: dict[TopicPartition, list[PolledLog]]
    rings: dict[str, dict[TopicPartition, Ring]]
    uncommitted: dict[str, dict[TopicPartition, Uncommitted]]
    incidents: dict[str, OpenIncident]
    stability: dict[str, Stability]
    judged: set[str]
    lives: dict[str, Life]
    lists: tuple[str, int, int]
    deleted: dict[str, int]


def _packed(window: Any) -> tuple[int, Sequence[int], list[OffsetSample]]:
    """Make values that msgspec can encode from the only object that it cannot."""
    return len(window.slots), window.orders, [each for each in window.slots if each]


def _unpacked(_kind: type, packed: object) -> Window:
    intervals, orders, samples = msgspec.convert(packed, tuple[int, list[int], list[OffsetSample]])
    return Window.restored(orders, samples, intervals=intervals, min_distance=0)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_packed)
_DECODER = msgspec.msgpack.Decoder(_Kept, dec_hook=_unpacked)


def dump(memory: Memory, cluster: str, now_ms: int) -> bytes:
    rings = memory.rings
    kept = _Kept(
        _VERSION,
        cluster,
        now_ms,
        rings.intervals,
        rings.order,
        {place: [*history] for place, history in rings.logs.items()},
        rings.groups,
        rings.uncommitted,
        memory.incidents.open,
        memory.stability,
        memory.judged,
        memory.lives,
        memory.lists,
        memory.deleted,
    )
    return zlib.compress(_ENCODER.encode(kept), 1)


def load(value: bytes | None, cluster: str, now_ms: int) -> Memory:
    """Decode the saved memory. Return an empty memory for bytes that are too old, or of another format or cluster."""
    if value is None:
        return Memory()
    try:
        kept = _DECODER.decode(zlib.decompress(value))
    except (zlib.error, msgspec.DecodeError) as error:
        return _nothing(str(error))
    if kept.version != _VERSION or kept.cluster != cluster:
        return _nothing(f"it has version {kept.version} and belongs to the cluster {kept.cluster!r}")
    if now_ms - kept.saved_at_ms > DEFAULT_EXPIRE_GROUP * 1000:
        return _nothing("it is so old that Burrow would have expired every group in it")
    logs = {place: deque(history, kept.intervals) for place, history in kept.logs.items()}
    return Memory(
        Rings(kept.intervals, logs, kept.rings, kept.uncommitted, order=kept.order),
        Incidents(kept.incidents),
        kept.stability,
        kept.judged,
        kept.lives,
        kept.lists,
        kept.deleted,
    )


def _nothing(reason: str) -> Memory:
    _log.warning(
        "the saved state of the groups cannot be used; the rings start empty",
        code="watch_state_unusable",
        reason=reason,
    )
    return Memory()
