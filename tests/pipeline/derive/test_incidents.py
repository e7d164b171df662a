"""Compares the incidents that Spark derives with those found by a plain loop over the events."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from karrot.pipeline.derive.incidents import incidents, without_summary
from karrot.pipeline.derive.status_intervals import verdict_runs
from support.pipeline.event_rows import event_row, events_frame, partitions_frame
from support.pipeline.row_times import second_at

_SEVERITY = {"WARN": 2, "ERR": 3}


class ExpectedIncident(NamedTuple):
    """An incident with the columns of the table."""

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
    """Find the incidents of one group by a loop over its events in the order of arrival."""
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


SILENCE = dt.timedelta(seconds=300)


def _incidents(spark: SparkSession, rows: list[dict[str, Any]], as_of: dt.datetime) -> list[ExpectedIncident]:
    runs = verdict_runs(events_frame(spark, rows), partitions_frame(spark, rows), silence=SILENCE)
    found = incidents(without_summary(runs), silence=SILENCE, as_of=as_of).collect()
    assert all(row.day == _utc(row.started_at).date() for row in found)  # type: ignore[union-attr]
    return sorted(
        (
            ExpectedIncident(
                row.consumer,
                row.incident_id,
                _utc(row.started_at),
                _utc(row.ended_at),
                row.ended_by,
                row.worst_status,
                row.peak_lag,
                row.events,
                tuple(row.topics),
            )
            for row in found
        ),
        key=repr,
    )


def _utc(moment: dt.datetime | None) -> dt.datetime | None:
    return None if moment is None else moment.astimezone(dt.UTC)


def test_incidents_end_in_every_possible_way(spark: SparkSession) -> None:
    rows = [
        # Its own close, with a verdict from REST in between; the worst status and the largest lag are kept.
        event_row(0, "ok", consumer="closed"),
        event_row(60, "warn", "a", consumer="closed", total_lag=5, topics=["t2"]),
        event_row(120, "err", consumer="closed", total_lag=9, topics=["t1", "t2"]),
        event_row(180, "close", "a", consumer="closed", total_lag=0),
        # Burrow gives its start; then another id.
        event_row(60, "warn", "a", consumer="followed", incident_start=second_at(-86_400 * 2)),
        event_row(120, "warn", "b", consumer="followed"),
        event_row(150, "ok", consumer="followed"),
        event_row(60, "err", "a", consumer="deleted"),
        event_row(90, "gone", consumer="deleted"),
        # Silent, then OK: the status in between is unknown.
        event_row(60, "warn", "a", consumer="silent"),
        event_row(4_000, "ok", consumer="silent"),
        # Silent, then the same incident again: it did not end.
        event_row(60, "warn", "a", consumer="resumed"),
        event_row(4_000, "warn", "a", consumer="resumed"),
        event_row(4_060, "close", "a", consumer="resumed"),
        # Only its end was reported.
        event_row(60, "close", "a", consumer="close alone"),
        event_row(3_950, "warn", "a", consumer="open"),
        event_row(60, "odd", "a", consumer="odd"),
    ]
    none: tuple[str, ...] = ()
    assert _incidents(spark, rows, second_at(4_100)) == [
        ExpectedIncident("close alone", "a", second_at(60), second_at(60), "close", None, None, 1, none),
        ExpectedIncident("closed", "a", second_at(60), second_at(180), "close", "ERR", 9, 3, ("t1", "t2")),
        ExpectedIncident("deleted", "a", second_at(60), second_at(90), "deleted", "ERR", None, 1, none),
        ExpectedIncident(
            "followed", "a", second_at(-86_400 * 2), second_at(120), "new_incident", "WARN", None, 1, none
        ),
        ExpectedIncident("followed", "b", second_at(120), second_at(150), "recovered", "WARN", None, 1, none),
        ExpectedIncident("open", "a", second_at(3_950), None, None, "WARN", None, 1, none),
        ExpectedIncident("resumed", "a", second_at(60), second_at(4_060), "close", "WARN", None, 3, none),
        ExpectedIncident("silent", "a", second_at(60), second_at(360), "silence", "WARN", None, 1, none),
    ]


def test_verdicts_without_an_id_form_an_incident_until_a_verdict_has_an_id(spark: SparkSession) -> None:
    rows = [
        event_row(0, "warn", consumer="nameless"),
        event_row(200, "err", consumer="nameless"),
        event_row(1_000, "warn", consumer="nameless"),
        event_row(1_100, "ok", consumer="nameless"),
        event_row(0, "warn", consumer="named late", total_lag=7),
        event_row(60, "warn", "a", consumer="named late", total_lag=3),
        event_row(90, "close", "a", consumer="named late"),
        # A known id does not open an incident again.
        event_row(0, "warn", "a", consumer="late"),
        event_row(60, "close", "a", consumer="late"),
        event_row(90, "warn", "a", consumer="late"),
        # Observed before an event that arrived earlier: skipped, as in the service.
        event_row(0, "warn", "a", consumer="overtaken"),
        event_row(30, "ok", consumer="overtaken", late=40),
        event_row(60, "warn", "a", consumer="overtaken"),
    ]
    assert [found[:5] for found in _incidents(spark, rows, second_at(1_200))] == [
        ("late", "a", second_at(0), second_at(60), "close"),
        ("named late", "a", second_at(0), second_at(90), "close"),
        ("nameless", None, second_at(0), second_at(500), "silence"),
        ("nameless", None, second_at(1_000), second_at(1_100), "recovered"),
        ("overtaken", "a", second_at(0), second_at(360), "silence"),
    ]


def test_the_query_agrees_with_the_loop_for_any_events(spark: SparkSession) -> None:
    """One query handles four hundred histories, because it takes as long for a single one."""
    rng = Random(5)
    groups = {f"g{number}": _anything(rng, f"g{number}") for number in range(400)}
    rows = [row for said_of in groups.values() for row in said_of]
    as_of = second_at(86_400)

    expected = [found for said_of in groups.values() for found in incidents_of_group(said_of, SILENCE, as_of)]

    assert _incidents(spark, rows, as_of) == sorted(expected, key=repr)
    assert len(_ways(expected)) == 6


def _anything(rng: Random, consumer: str) -> list[dict[str, Any]]:
    """Draw up to twenty events around midnight, with any statuses, ids, silences, equal times and late events."""
    seconds: float = 86_400 - rng.randint(0, 3_000)
    rows = []
    for _ in range(rng.randint(1, 20)):
        seconds += rng.choice([0, 0, 30, 60, 120, 299.999, 300, 300.001, 900])
        word = rng.choice(["ok", "warn", "warn", "warn", "err", "err", "close", "gone", "odd"])
        named = word in ("close", "odd") or (word in ("warn", "err") and rng.random() < 0.6)
        within_its_day = min(rng.choice([0, 0, 0, 45]), seconds % 86_400)
        rows.append(
            event_row(
                seconds,
                word,
                rng.choice("abcd") if named else None,
                consumer=consumer,
                late=within_its_day,
                total_lag=rng.choice([None, rng.randint(0, 99)]),
                topics=rng.sample(["t1", "t2", "t3"], rng.randint(0, 2)),
                incident_start=second_at(seconds - 7) if named and rng.random() < 0.3 else None,
            )
        )
    return rows


def _ways(found: Iterable[ExpectedIncident]) -> Counter[str | None]:
    return Counter(one.ended_by for one in found)
