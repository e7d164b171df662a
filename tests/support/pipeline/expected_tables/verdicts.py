"""What the verdicts on a group say over time: the tables ``verdict_runs``, ``status_intervals`` and ``incidents``.

Everything here is a loop over the events of one group, in the order in which they arrived.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from support.pipeline.expected_tables.archive_lines import Event
from support.pipeline.expected_tables.calendar_ms import DAY_MS, MINUTE_MS, day_of, day_text

SEVERITY = {"NOTFOUND": 0, "OK": 1, "WARN": 2, "ERR": 3, "STOP": 4, "STALL": 5, "REWIND": 6}
"""Burrow's numbers."""

_PIECE_HOURS = 6
_RUNS_PER_HOUR = 10**9

Rows = list[dict[str, Any]]


def observed(event: Event) -> int:
    """Return when an event was observed.

    It cannot be after the receipt, or more than a day before it. In these cases the time of receipt counts.
    """
    at, received = event.observed_ms, event.received_ms
    return at if at is not None and received - DAY_MS <= at <= received else received


def by_group(events: Iterable[Event]) -> dict[tuple[str, str], list[Event]]:
    """Return the events of each group in the order of arrival."""
    groups = defaultdict[tuple[str, str], list[Event]](list)
    for event in sorted(events, key=lambda event: event.arrival):
        groups[event.group].append(event)
    return groups


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Leave out each event that was observed before an event that arrived earlier."""
    newest = None
    for event in events:
        if newest is None or observed(event) >= newest:
            newest = observed(event)
            yield event


def newest_verdict(events: Iterable[Event]) -> int:
    """Return the time of the newest verdict on any group, which counts as the present time."""
    return max(map(observed, events), default=0)


# --- verdict_runs ---


def verdict_runs(events: Iterable[Event], silence_ms: int) -> Rows:
    """Make a row of consecutive equal verdicts on a group within a quarter of a day."""
    rows = []
    for (cluster, consumer), of_group in by_group(events).items():
        days = defaultdict[int, list[Event]](list)
        for event in of_group:
            days[day_of(event.received_ms)].append(event)
        for day, of_day in days.items():
            numbers = Counter[int]()
            for run in _runs(of_day, silence_ms):
                hour = _piece(run[0])
                numbers[hour] += 1
                number = hour * _RUNS_PER_HOUR + numbers[hour]
                place = {"cluster": cluster, "consumer": consumer, "run": number, "day": day_text(day)}
                rows.append(place | _run_row(run))
    return rows


def _runs(events: Iterable[Event], silence_ms: int) -> Iterator[list[Event]]:
    run: list[Event] = []
    for event in in_order(events):
        if run and (_said(event) != _said(run[0]) or observed(event) - observed(run[-1]) > silence_ms):
            yield run
            run = []
        run.append(event)
    if run:
        yield run


def _piece(event: Event) -> int:
    hour = (event.received_ms - day_of(event.received_ms)) // (60 * MINUTE_MS)
    return hour - hour % _PIECE_HOURS


def _said(event: Event) -> tuple[int, str | None, str | None, str]:
    return _piece(event), event.kind, event.incident_id, event.status


def _run_row(run: list[Event]) -> dict[str, Any]:
    return {
        "kind": run[0].kind,
        "incident_id": run[0].incident_id,
        "status": run[0].status,
        "first_at": observed(run[0]),
        "last_at": observed(run[-1]),
        "events": len(run),
        "incident_start": run[0].incident_start_ms,
        "peak_lag": max((event.total_lag for event in run if event.total_lag is not None), default=None),
        "topics": _bad_topics(run),
    }


def _bad_topics(events: Iterable[Event]) -> list[str]:
    return sorted({one.topic for event in events for one in event.partitions if one.is_bad})


# --- status_intervals ---


def status_intervals(events: list[Event], silence_ms: int) -> Rows:
    """Make a row for each time in which a group had one status. Such a time is cut at midnight."""
    now, rows = newest_verdict(events), []
    for (cluster, consumer), of_group in by_group(events).items():
        for status, from_ms, to_ms in _lasting(list(in_order(of_group)), silence_ms, now):
            for begin, end in _cut_at_midnight(from_ms, to_ms):
                group = {"cluster": cluster, "consumer": consumer, "status": status}
                rows.append({**group, "from_at": begin, "to_at": end, "day": day_text(begin)})
    return rows


def _lasting(events: list[Event], silence_ms: int, now: int) -> Iterator[tuple[str, int, int]]:
    """Yield each status with its beginning and its end. A verdict lasts until the next one, or until silence."""
    status, begin, end = "", 0, 0
    for number, event in enumerate(events):
        until = observed(events[number + 1]) if number + 1 < len(events) else now
        until = min(until, observed(event) + silence_ms)
        if status and event.status == status and observed(event) == end:
            end = until
            continue
        if status and begin < end:
            yield status, begin, end
        status, begin, end = event.status if SEVERITY.get(event.status) else "", observed(event), until
    if status and begin < end:
        yield status, begin, end


def _cut_at_midnight(begin: int, end: int) -> Iterator[tuple[int, int]]:
    while begin < end:
        midnight = day_of(begin) + DAY_MS
        yield begin, min(end, midnight)
        begin = midnight


# --- incidents ---


@dataclass
class _Incident:
    """An incident that has not ended. Without an id, ``name`` is None."""

    name: str | None
    members: list[Event] = field(default_factory=list)
    start_ms: int | None = None

    def row(self, ended_ms: int | None, ended_by: str | None) -> dict[str, Any]:
        bad = [event for event in self.members if event.kind == "incident"]
        started_ms = observed(self.members[0]) if self.start_ms is None else self.start_ms
        return {
            "incident_id": self.name,
            "cluster": self.members[0].cluster,
            "consumer": self.members[0].consumer,
            "started_at": started_ms,
            "ended_at": ended_ms,
            "ended_by": ended_by,
            "worst_status": max((event.status for event in bad), key=SEVERITY.__getitem__, default=None),
            "peak_lag": max((event.total_lag for event in bad if event.total_lag is not None), default=None),
            "events": len(self.members),
            "topics": _bad_topics(bad),
            "day": day_text(started_ms),
        }


def incidents(events: list[Event], silence_ms: int) -> Rows:
    """Make a row of each incident, on the day on which it started."""
    now = newest_verdict(events)
    return [row for of_group in by_group(events).values() for row in _incidents_of(of_group, silence_ms, now)]


def _incidents_of(events: Iterable[Event], silence_ms: int, now: int) -> Iterator[dict[str, Any]]:
    current: _Incident | None = None
    ids, heard_ms = set[str](), None
    for event in in_order(events):
        at, name = observed(event), event.incident_id
        silent_ms = heard_ms + silence_ms if heard_ms is not None and at - heard_ms > silence_ms else None
        heard_ms = at
        if current and current.name is None and silent_ms is not None:
            yield current.row(silent_ms, "silence")  # without an id, it cannot continue
            current = None
        if event.kind in ("incident", "close") and name is not None and name not in ids:
            ids.add(name)
            if current and current.name is not None:
                yield _ended(current, silent_ms, at, "new_incident")
                current = None
            current = current or _Incident(name)
            current.name, current.start_ms = name, event.incident_start_ms
            current.members.append(event)
        elif event.kind == "incident" and (name is None or (current and current.name == name)):
            current = current or _Incident(None)
            current.members.append(event)
        elif event.kind == "close" and current and current.name == name:
            current.members.append(event)
        if current and event.kind == "close" and current.name == name:
            yield current.row(at, "close")
            current = None
        elif current and event.kind in ("observation", "close", "deleted"):
            yield _ended(current, silent_ms, at, "deleted" if event.kind == "deleted" else "recovered")
            current = None
    if current and heard_ms is not None:
        is_silent = heard_ms + silence_ms < now
        yield current.row(heard_ms + silence_ms, "silence") if is_silent else current.row(None, None)


def _ended(incident: _Incident, silent_ms: int | None, at_ms: int, by: str) -> dict[str, Any]:
    """Return the row of an incident that another verdict ends. If the group was silent before, silence ended it."""
    return incident.row(at_ms, by) if silent_ms is None else incident.row(silent_ms, "silence")
