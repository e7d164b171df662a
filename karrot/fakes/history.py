"""A history at full speed: what a Burrow posts and answers in days, as the archive of the service that took it.

Beside the archive lies the truth: each incident of which Burrow told, written down by somebody who only listened.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, Self

import msgspec

from karrot.burrow.payload import to_wire
from karrot.event import Kind, LagEvent, Source, Status
from karrot.eventline import encode
from karrot.eventlog.base import StoredEvent
from karrot.fakes.burrow import BurrowSettings, FakeBurrow
from karrot.fakes.notifier import NotifierSettings
from karrot.fakes.week import DAY, MINUTE_SPEED, Planted, consumer_groups, planted
from karrot.reporters.archive.folder import Folder
from karrot.reporters.archive.segment import Buffer

__all__ = ["MINUTE_MS", "Told", "read_truth", "write_history"]

MINUTE_MS: Final = 60_000
_RESYNC_MINUTES = 5
_SEGMENT_BYTES = 8 * 1024 * 1024
_QUICKLY = 1
"""zlib's level: a third larger than the service's segments, in less than half the time."""
_NEVER = 2**62
_FAILOVER = ("prod-us", 11 * 60)
"""Another Burrow takes over while a group stalls: its incident gets another id."""
_SETTINGS = BurrowSettings(
    NotifierSettings(threshold=Status.OK, interval=1, send_interval=0.5, send_close=True), group_refresh=1
)
"""A verdict a minute on every group; the other figures are minutes, too."""


class Told(msgspec.Struct):
    """An incident as Burrow told of it, moments in epoch milliseconds. ``ended_by`` is ``None`` while it lasts.

    ``planted_from`` and ``planted_to`` are when its ``cause`` was there: what befell the group, or what came with it.
    """

    incident_id: str
    cluster: str
    consumer: str
    started_at_ms: int
    ended_at_ms: int | None = None
    ended_by: str | None = None
    worst_status: str = Status.WARN.name
    peak_lag: int = 0
    cause: str | None = None
    planted_from_ms: int | None = None
    planted_to_ms: int | None = None


def read_truth(path: Path) -> list[Told]:
    """What `write_history` wrote beside its archives."""
    return [msgspec.json.decode(line, type=Told) for line in path.read_bytes().splitlines()]


def write_history(
    archive: Path, truth: Path, cluster: str, *, start_ms: int, groups: int, days: int, seed: int = 7
) -> int:
    """Write the archive of one cluster's service and the truth about it; return the number of events.

    The same arguments give the same files, byte for byte. ``start_ms`` is a midnight in UTC.
    """
    listener = _Listener()
    written = 0
    with _Archive(archive, sha256(f"{seed}/{cluster}/{start_ms}".encode()).hexdigest()[:16]) as out:
        for event, body in _events(cluster, start_ms=start_ms, groups=groups, days=days, seed=seed):
            listener.hear(event)
            out.add(event, body)
            written += 1
    causes = [one for one in planted(groups, days) if one.cluster == cluster]
    lines = (msgspec.json.encode(_explained(one, causes, start_ms)) + b"\n" for one in listener.told)
    truth.write_bytes(b"".join(lines))
    return written


# --- what the service hears ---


class _Heard(NamedTuple):
    event: LagEvent
    body: bytes


def _events(cluster: str, *, start_ms: int, groups: int, days: int, seed: int) -> Iterator[_Heard]:
    """The webhooks of Burrow, and between them every five minutes what its REST API answers to a resync.

    The groups are listed every minute: one that is deleted is missed before its silence ends its incident.
    """
    burrow = FakeBurrow(
        {cluster: consumer_groups(cluster, groups, days, seed)},
        Random(f"{seed}/{cluster}"),  # noqa: S311 (a simulation)
        start_ms=start_ms,
        speed=MINUTE_SPEED,
        settings=_SETTINGS,
    )
    resync = _Resync(burrow, cluster)
    for minute in range(1, days * DAY + 1):
        now_ms = start_ms + minute * MINUTE_MS - 1
        if (cluster, minute) == _FAILOVER:
            burrow.failover()
        yield from (_Heard(post.event, post.body) for post in burrow.due(now_ms))
        answers = resync.once(now_ms, ask=minute % _RESYNC_MINUTES == 0)
        yield from (_Heard(event, to_wire(event)) for event in answers)


@dataclass(slots=True)
class _Resync:
    """Lists the groups, perhaps asks for every one, and tells of those that two lists did not hold."""

    burrow: FakeBurrow
    cluster: str
    known: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    def once(self, now_ms: int, *, ask: bool) -> Iterator[LagEvent]:
        with self.burrow.at(now_ms) as storages:
            listed = storages[self.cluster].groups()
        for group in listed if ask else ():
            verdict = self.burrow.verdict(self.cluster, group, now_ms)
            if verdict is not None:
                yield replace(verdict, source=Source.REST, observed_at_ms=now_ms)
        gone = self.known - set(listed)
        for group in sorted(gone & self.missing):
            yield LagEvent(self.cluster, group, Status.NOTFOUND.name, None, observed_at_ms=now_ms, source=Source.REST)
        self.missing = gone - self.missing
        self.known = frozenset(listed) | self.missing


# --- what it archives ---


class _Archive:
    """The archive reporter's own segments in its own folder, cut at the hour or at 8 MiB: events come faster here."""

    def __init__(self, folder: Path, log_id: str) -> None:
        self._folder = Folder(folder)
        self._buffer = Buffer(_SEGMENT_BYTES, _QUICKLY)
        self._log_id = log_id
        self._seqs = count(1)

    def __enter__(self) -> Self:
        for _ in self._folder.open():
            pass
        return self

    def __exit__(self, *_raised: object) -> None:
        self._buffer.seal()
        self._keep()
        self._folder.close()

    def add(self, event: LagEvent, body: bytes) -> None:
        at_ms = event.observed_at_ms
        stored = StoredEvent(self._log_id, next(self._seqs), at_ms, at_ms, body, event)
        self._buffer.add(stored, encode(stored), _NEVER)
        self._keep()

    def _keep(self) -> None:
        while self._buffer.sealed:
            self._folder.put(*self._buffer.sealed.popleft())


# --- the truth ---


@dataclass(slots=True)
class _Group:
    told: Told | None = None
    worst: Status = Status.OK
    peak: int = 0


class _Listener:
    """Writes down each incident: from Burrow's own start to the first word that it is over."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._groups: dict[str, _Group] = {}

    def hear(self, event: LagEvent) -> None:
        group = self._groups.setdefault(event.consumer, _Group())
        if event.kind is Kind.INCIDENT:
            self._worse(group, event)
        else:
            self._over(group, event, "recovered" if event.kind is Kind.OBSERVATION else event.kind.value)
            group.worst, group.peak = Status.OK, 0

    def _worse(self, group: _Group, event: LagEvent) -> None:
        begins = event.incident_id is not None and event.incident_id not in {told.incident_id for told in self.told}
        if begins and group.told is not None:
            self._over(group, event, "new_incident")
            group.worst, group.peak = Status.OK, 0
        group.worst = max(group.worst, event.status or Status.OK)
        group.peak = max(group.peak, event.total_lag or 0)
        if begins:
            group.told = _told(event)
            self.told.append(group.told)
        if group.told is not None:
            group.told.worst_status, group.told.peak_lag = group.worst.name, group.peak

    @staticmethod
    def _over(group: _Group, event: LagEvent, by: str) -> None:
        if group.told is not None:
            group.told.ended_at_ms, group.told.ended_by = event.observed_at_ms, by
            group.told = None


def _told(event: LagEvent) -> Told:
    start = event.incident_start
    if event.incident_id is None or start is None:
        raise ValueError("Burrow sends an incident's id with its start")
    return Told(event.incident_id, event.cluster, event.consumer, round(start.timestamp() * 1000))


def _explained(told: Told, causes: list[Planted], start_ms: int) -> Told:
    """With its cause: the newest one before it began."""
    minute = (told.started_at_ms - start_ms) / MINUTE_MS
    before = [one for one in causes if one.consumer == told.consumer and one.from_minute <= minute]
    if before:
        cause = max(before, key=lambda one: one.from_minute)
        told.cause = cause.cause
        told.planted_from_ms = start_ms + round(cause.from_minute * MINUTE_MS)
        told.planted_to_ms = start_ms + round(cause.to_minute * MINUTE_MS)
    return told
