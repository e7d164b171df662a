"""Writes a history: the archive of a service that received days of Burrow's posts and answers.

Next to the archive, it writes the truth: the incidents in Burrow's events, recorded without Karrot's code.
"""

from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Self

import msgspec

from karrot.event import Kind, LagEvent, Status
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.reporters.archive.local_folder import Folder
from karrot.reporters.archive.reporter import Segment
from tools.history_generator.event_stream import MINUTE_MS, events
from tools.history_generator.history_scenario import Planted, planted

_SEGMENT_BYTES = 8 * 1024 * 1024
_QUICK = 1
"""This level of compression gives segments a third larger than the service's, in less than half the time."""


class Told(msgspec.Struct):
    """An incident by Burrow's events, with times in epoch milliseconds. ``ended_by`` is ``None`` while it is open.

    ``planted_from`` and ``planted_to`` are the start and end of its ``cause``, a planted problem or its result.
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
    """Read the truth that `write_history` wrote next to its archives."""
    return [msgspec.json.decode(line, type=Told) for line in path.read_bytes().splitlines()]


def write_history(
    archive: Path,
    truth: Path,
    cluster: str,
    *,
    start_ms: int,
    groups: int,
    days: int,
    seed: int = 7,
) -> int:
    """Write the archive of one cluster's service and the truth about it; return the number of events.

    The same arguments give the same files, byte for byte. ``start_ms`` is a midnight in UTC.
    """
    listener = _Listener()
    written = 0
    with _Archive(archive, sha256(f"{seed}/{cluster}/{start_ms}".encode()).hexdigest()[:16]) as out:
        for event, body in events(cluster, start_ms=start_ms, groups=groups, days=days, seed=seed):
            listener.hear(event)
            out.add(event, body)
            written += 1
    causes = [one for one in planted(groups, days) if one.cluster == cluster]
    lines = (msgspec.json.encode(_explained(one, causes, start_ms)) + b"\n" for one in listener.told)
    truth.write_bytes(b"".join(lines))
    return written


# --- what it archives ---


class _Archive:
    """Writes segments with the archive reporter's code. A segment ends at the hour or at 8 MiB."""

    def __init__(self, folder: Path, log_id: str) -> None:
        self._folder = Folder(folder)
        self._segment: Segment | None = None
        self._log_id = log_id
        self._seqs = count(1)

    def __enter__(self) -> Self:
        for _ in self._folder.open():
            pass
        return self

    def __exit__(self, *_raised: object) -> None:
        self._keep()
        self._folder.close()

    def add(self, event: LagEvent, body: bytes) -> None:
        at_ms = event.observed_at_ms
        stored = StoredEvent(self._log_id, next(self._seqs), at_ms, summarize(event, at_ms), body, event)
        line = encode(stored)
        if self._segment is None or not self._segment.add(stored, line):
            self._keep()
            self._segment = Segment(stored, _SEGMENT_BYTES, _QUICK)
            self._segment.add(stored, line)

    def _keep(self) -> None:
        if self._segment is not None:
            self._folder.put(*self._segment.sealed())


# --- the truth ---


@dataclass(slots=True)
class _Group:
    told: Told | None = None
    worst: Status = Status.OK
    peak: int = 0


class _Listener:
    """Records each incident, from Burrow's own start to the first event that ends it."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._ids: set[str] = set()

    def hear(self, event: LagEvent) -> None:
        group, kind = self._groups[event.consumer], event.kind
        if kind is Kind.INCIDENT:
            self._worse(group, event)
        elif group.worst is not Status.OK:
            self._over(group, event, "recovered" if kind is Kind.OBSERVATION else kind.value)
            group.worst, group.peak = Status.OK, 0

    def _worse(self, group: _Group, event: LagEvent) -> None:
        begins = event.incident_id is not None and event.incident_id not in self._ids
        if begins and group.told is not None:
            self._over(group, event, "new_incident")
            group.worst, group.peak = Status.OK, 0
        group.worst = max(group.worst, event.status or Status.OK)
        group.peak = max(group.peak, event.total_lag or 0)
        if begins:
            group.told = _told(event)
            self.told.append(group.told)
            self._ids.add(group.told.incident_id)
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
    """Return an incident with its cause: the newest planted problem before the incident's start."""
    minute = (told.started_at_ms - start_ms) / MINUTE_MS
    before = [one for one in causes if one.consumer == told.consumer and one.from_minute <= minute]
    if before:
        cause = max(before, key=lambda one: one.from_minute)
        told.cause = cause.cause
        told.planted_from_ms = start_ms + round(cause.from_minute * MINUTE_MS)
        told.planted_to_ms = start_ms + round(cause.to_minute * MINUTE_MS)
    return told
