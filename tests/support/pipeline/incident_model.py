"""Incidents found the slow way: one event after the other. What `karrot.pipeline.derive.incidents` is compared with."""

import datetime as dt
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["ExpectedIncident", "incidents_of_group"]

_SEVERITY = {"WARN": 2, "ERR": 3}


class ExpectedIncident(NamedTuple):
    """An incident as the table has it."""

    consumer: str
    incident_id: str | None
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    ended_by: str | None
    worst_status: str | None
    peak_lag: int | None
    events: int
    topics: tuple[str, ...]


def incidents_of_group(
    events: Iterable[dict[str, Any]], silence: dt.timedelta, as_of: dt.datetime
) -> list[ExpectedIncident]:
    """The incidents of one group, of its events in the order of arrival."""
    group = _Group(silence)
    for event in events:
        if group.newest is None or event["observed_at"] >= group.newest:
            group.hear(event)
    if group.members and group.newest is not None and group.newest + silence < as_of:
        group.end(group.newest + silence, "silence")
    elif group.members:
        group.end(None, None)
    return group.found


class _Group:
    def __init__(self, silence: dt.timedelta) -> None:
        self.silence = silence
        self.newest: dt.datetime | None = None
        self.seen: set[str] = set()
        self.name: str | None = None
        self.start: dt.datetime | None = None
        self.members: list[dict[str, Any]] = []
        self.found: list[ExpectedIncident] = []

    def hear(self, event: dict[str, Any]) -> None:
        before, self.newest = self.newest, event["observed_at"]
        self.silent_at = None
        if before is not None and event["observed_at"] - before > self.silence:
            self.silent_at = before + self.silence
        if self.silent_at and self.members and self.name is None:
            self.end(self.silent_at, "silence")
        self.take(event)

    def take(self, event: dict[str, Any]) -> None:
        kind, name = event["kind"], event["incident_id"]
        fresh = kind in ("incident", "close") and name is not None and name not in self.seen
        if fresh:
            self.open(event, name)
        elif kind == "incident" and (name is None or (name == self.name and self.members)):
            self.members.append(event)
        if kind == "close":
            own = bool(self.members) and name == self.name
            if own and not fresh:
                self.members.append(event)
            self.finish(event, "close" if own else "recovered", own=own)
        elif kind in ("observation", "deleted"):
            self.finish(event, "recovered" if kind == "observation" else "deleted", own=False)

    def open(self, event: dict[str, Any], name: str) -> None:
        if self.members and self.name is not None:
            self.finish(event, "new_incident", own=False)
        self.seen.add(name)
        self.name, self.start = name, event.get("incident_start")
        self.members.append(event)

    def finish(self, event: dict[str, Any], by: str, *, own: bool) -> None:
        if self.members and self.silent_at and not own:
            self.end(self.silent_at, "silence")
        elif self.members:
            self.end(event["observed_at"], by)

    def end(self, ended_at: dt.datetime | None, by: str | None) -> None:
        bad = [event for event in self.members if event["kind"] == "incident"]
        worst = max((event["status"] for event in bad), key=_SEVERITY.__getitem__, default=None)
        lags = [event["total_lag"] for event in bad if event.get("total_lag") is not None]
        topics = {topic for event in bad for topic in event.get("topics", ())}
        started = self.start or self.members[0]["observed_at"]
        consumer = self.members[0]["consumer"]
        peak = max(lags, default=None)
        self.found.append(
            ExpectedIncident(
                consumer, self.name, started, ended_at, by, worst, peak, len(self.members), tuple(sorted(topics))
            )
        )
        self.name, self.start, self.members = None, None, []
