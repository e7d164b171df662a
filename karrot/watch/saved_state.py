"""Saves the rings, incidents and rebalance counts for a restart, in a file or in the event log."""

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from karrot.burrow.rules import DEFAULT_EXPIRE_GROUP, Window
from karrot.event import FirstUnread, OffsetSample, OpenIncident, TopicPartition
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.locks import flush
from karrot.runbooks_and_remedies import WATCH
from karrot.watch.cluster_reader import Stability
from karrot.watch.rings import CommitHistory, PolledLog, Ring, Rings, Uncommitted
from karrot.watch.verdicts_and_incidents import Incidents, Life

_VERSION = 1
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


class _Sample(NamedTuple):
    offset: int
    timestamp_ms: int
    lag: int | None
    observed_at_ms: int | None = None
    log_end: int | None = None


_sample_of = attrgetter(*_Sample._fields)  # of an `OffsetSample`


class _Ring(msgspec.Struct, array_like=True):
    topic: str
    partition: int
    silent: int
    is_judged: bool
    samples: list[_Sample]
    past: CommitHistory = CommitHistory()
    unowned: int = 0
    first: FirstUnread | None = None
    held: int | None = None


class _Group(msgspec.Struct, array_like=True):
    name: str
    rings: list[_Ring]
    incident: OpenIncident | None
    rebalances: int
    assignment: int | None
    is_rebalancing: bool
    uncommitted: list[tuple[str, int, int, int, int]] = []
    life: Life | None = None


class _Kept(msgspec.Struct, array_like=True):
    version: int
    cluster: str
    saved_at_ms: int
    intervals: int
    ends: list[tuple[str, int, list[int]]]
    groups: list[_Group]
    starts: list[list[int | None]] = []
    lists: tuple[str, int, int] = ("", 0, 0)
    deleted: dict[str, int] = {}


def dump(memory: Memory, cluster: str, now_ms: int) -> bytes:
    """Encode the memory: about 60 bytes for each partition with a full ring."""
    rings = memory.rings
    ends = [(*place, [log.end for log in history]) for place, history in rings.logs.items()]
    starts = [[log.start for log in history] for history in rings.logs.values()]
    groups: list[_Group] = []
    for name, stability in memory.stability.items():
        group = _Group(
            name,
            [
                _Ring(*at, one.silent, one.is_judged, samples, one.past, one.unowned, one.first, one.held)
                for at, one in rings.groups.get(name, {}).items()
                for samples in [[_Sample(*_sample_of(each)) for each in one.window.slots if each]]
            ],
            memory.incidents.open.get(name),
            stability.rebalances,
            stability.assignment,
            stability.is_rebalancing,
            [(*place, *one[:3]) for place, one in rings.uncommitted.get(name, {}).items()],
            memory.lives.get(name),
        )
        groups.append(group)
    kept = _Kept(_VERSION, cluster, now_ms, rings.intervals, ends, groups, starts, memory.lists, memory.deleted)
    return zlib.compress(msgspec.msgpack.encode(kept), 1)


def load(value: bytes | None, cluster: str, now_ms: int) -> Memory:
    """Decode the saved memory. Return an empty memory for bytes that are too old, or of another format or cluster."""
    if value is None:
        return Memory()
    try:
        kept = msgspec.msgpack.decode(zlib.decompress(value), type=_Kept)
    except (zlib.error, msgspec.DecodeError) as error:
        return _nothing(str(error))
    if kept.version != _VERSION or kept.cluster != cluster:
        return _nothing(f"it has version {kept.version} and belongs to the cluster {kept.cluster!r}")
    if now_ms - kept.saved_at_ms > DEFAULT_EXPIRE_GROUP * 1000:
        return _nothing("it is so old that Burrow would have expired every group in it")
    return _memory(kept)


def _nothing(reason: str) -> Memory:
    _log.warning(
        "the saved state of the groups cannot be used; the rings start empty",
        code="watch_state_unusable",
        reason=reason,
    )
    return Memory()


def _memory(kept: _Kept) -> Memory:
    logs = {
        TopicPartition(topic, partition): deque(
            (PolledLog(*each, kept.saved_at_ms) for each in zip(starts or repeat(None), ends, strict=False)),
            kept.intervals,
        )
        for (topic, partition, ends), starts in zip_longest(kept.ends, kept.starts)
    }
    memory = Memory(Rings(kept.intervals, logs), lists=kept.lists, deleted=kept.deleted)
    for group in kept.groups:
        for one in group.rings:
            ring = Ring(Window(kept.intervals), one.silent, one.is_judged, one.first, one.held, one.past, one.unowned)
            samples = [
                OffsetSample(offset, timestamp_ms, observed_at_ms=observed_at_ms, lag=lag, log_end=log_end)
                for offset, timestamp_ms, lag, observed_at_ms, log_end in one.samples
            ]
            memory.rings.restore(group.name, TopicPartition(one.topic, one.partition), ring, samples)
        memory.stability[group.name] = Stability(group.rebalances, group.assignment, group.is_rebalancing)
        if group.life is not None:
            memory.lives[group.name] = group.life
        if group.incident is not None:
            memory.incidents.open[group.name] = group.incident
        if group.uncommitted:
            memory.rings.uncommitted[group.name] = {
                TopicPartition(topic, partition): Uncommitted(first_end, polls, owned)
                for topic, partition, first_end, polls, owned in group.uncommitted
            }
        if group.rings or group.uncommitted:
            memory.judged.add(group.name)
    return memory
