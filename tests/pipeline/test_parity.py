"""The service and the pipeline give the same incidents and numbers for the same events."""

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.burrow.payload import to_wire
from karrot.event import LagEvent, Source
from karrot.event_json_line import line_of
from karrot.eventlog.base import GroupState, StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.eventlog.sqlite import SqliteEventLog
from karrot.pipeline.derive.incidents import incidents, without_summary
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.derive.lag_minute import lag_minute
from karrot.pipeline.derive.status_intervals import verdict_runs
from karrot.pipeline.store.table_files import Tables
from support.burrow.lag_events import make_event, make_partition
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.pipeline.event_rows import events_frame, partitions_frame

SILENCE = dt.timedelta(seconds=300)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _tell(log: SqliteEventLog, clock: ManualClock, rng: Random) -> list[dict[str, object]]:
    """Append half an hour of forty groups to the log; return the rows that ingest makes of it."""
    rows = []
    for _ in range(800):
        clock.advance(rng.choice([0, 1_000, 4_000]))
        age_ms = rng.choice([0, 0, 0, 5_000])
        event = _verdict(rng, clock.wall - age_ms)
        body = to_wire(event)
        seq = log.append(event, body, age_ms=age_ms).seq
        rows.append(_row(StoredEvent(log.log_id, seq, clock.wall, summarize(event, clock.wall), body, event)))
    return rows


def _verdict(rng: Random, observed_at_ms: int) -> LagEvent:
    status = rng.choice(["OK", "WARN", "WARN", "ERR", "NOTFOUND"])
    return make_event(
        consumer=f"g{rng.randrange(40)}",
        status_text=status,
        source=rng.choice([Source.WEBHOOK, Source.REST]),
        observed_at_ms=observed_at_ms,
        incident_id=rng.choice([None, *"abcdefg"]) if status != "NOTFOUND" else None,
        incident_start=_moment(observed_at_ms - 60_000),
        total_lag=rng.randrange(1_000),
        max_lag=make_partition(current_lag=rng.randrange(1_000)),
    )


def _row(stored: StoredEvent) -> dict[str, Any]:
    line: dict[str, Any] = msgspec.to_builtins(line_of(stored))
    received, observed = (_moment(line[name]) for name in ("received_at_ms", "observed_at_ms"))
    start = line["incident_start_ms"]
    told = {
        "received_at": received,
        "observed_at": observed,
        "incident_start": None if start is None else _moment(start),
    }
    return line | told | {"day": received.date(), "listed": [one | told for one in line["partitions"]]}


def _moment(epoch_ms: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=epoch_ms)


def _tell_of_one(log: SqliteEventLog, clock: ManualClock, rng: Random) -> Iterator[dict[str, Any]]:
    """Append three hours of a group to the log, and yield the rows. The first event of ten minutes is 45 s late."""
    status, incident_id, incidents_so_far = "OK", None, 0
    for number in range(540):
        if rng.random() < 0.9:
            status = rng.choice(["OK", "WARN", "ERR"])
        if status != "OK" and incident_id is None:
            incidents_so_far += 1
            incident_id = f"i{incidents_so_far}"
        age_ms = 45_000 if number % 30 == 0 else 0
        event = make_event(
            consumer="g",
            status_text=status,
            source=Source.WEBHOOK,
            observed_at_ms=clock.wall - age_ms,
            incident_id=incident_id,
            incident_start=None,
            total_lag=number,
        )
        if status == "OK":
            incident_id = None
        body = to_wire(event)
        seq = log.append(event, body, age_ms=age_ms).seq
        yield _row(StoredEvent(log.log_id, seq, clock.wall, summarize(event, clock.wall), body, event))
        clock.advance(20_000)


@pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine
def test_a_late_event_at_the_border_of_two_pieces_changes_no_incident_and_no_status(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The day is derived in two runs, before and after 06:00."""
    half_past_four = dt.datetime(2026, 11, 20, 4, 30, tzinfo=dt.UTC)
    clock = ManualClock(int(half_past_four.timestamp()) * 1000)
    rows, states = list[dict[str, Any]](), list[GroupState]()
    with closing(open_sqlite(tmp_path, clock, stale_after_ms=10**9)) as log:
        for row in _tell_of_one(log, clock, Random(11)):
            rows.append(row)
            states += log.live()
    tables = Tables(str(tmp_path / "tables"))
    for batch in (rows[:270], rows[270:]):
        tables.append(events_frame(spark, batch), "events", f"b-{batch[0]['seq']:06}")
        derive(spark, tables, DeriveRules())
    assert {file.piece for file in tables.files(spark, "verdict_runs")} == {0, 6}

    of_service = {(state.incident.open_id, state.incident.since_ms) for state in states if state.incident.open_id}
    found = tables.read(spark, "incidents").where("incident_id IS NOT NULL").collect()
    assert len(found) == states[-1].incident.total > 50
    # If only the close of an incident came in time, the service never shows the incident as open.
    shown = [row for row in found if row.started_at != row.ended_at]
    assert {(row.incident_id, round(row.started_at.timestamp() * 1000)) for row in shown} == of_service

    seen = sorted({(state.log_time_ms, state.summary.status_text) for state in states})
    # The status of the newest event has not lasted yet.
    begins = [now for before, now in pairwise([(0, ""), *seen[:-1]]) if before[1] != now[1]]
    intervals = tables.read(spark, "status_intervals").select(F.unix_millis("from_at").alias("at"), "status")
    assert sorted(map(tuple, intervals.collect())) == begins


def test_the_same_events_give_the_same_incidents_and_numbers(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock()
    with closing(open_sqlite(tmp_path, clock, stale_after_ms=10**9)) as log:
        rows = _tell(log, clock, Random(5))
        states = {state.key.consumer: state for state in log.live()}
    assert len(states) > 20

    events, partitions = events_frame(spark, rows), partitions_frame(spark, rows)
    runs = verdict_runs(events, partitions, silence=dt.timedelta(days=1))
    found = incidents(without_summary(runs), silence=dt.timedelta(days=1), as_of=_moment(clock.wall)).collect()
    named = [row for row in found if row.incident_id is not None]
    totals = {consumer: sum(row.consumer == consumer for row in named) for consumer in states}
    still_open = {
        row.consumer: (row.incident_id, row.started_at.astimezone(dt.UTC)) for row in named if row.ended_at is None
    }

    assert totals == {consumer: state.incident.total for consumer, state in states.items()}
    assert {key: value for key, value in still_open.items() if key in states} == {
        consumer: (state.incident.open_id, _moment(state.incident.since_ms))
        for consumer, state in states.items()
        if state.incident.open_id is not None and state.incident.since_ms is not None
    }
    assert len(still_open) > 5
    newest = {row.consumer: row for row in lag_minute(events).orderBy("minute").collect()}
    last = {row["consumer"]: row["seq"] for row in rows}
    lags = {consumer: state.summary.total_lag for consumer, state in states.items() if state.seq == last[consumer]}
    assert len(lags) > 10
    assert {consumer: newest[consumer].lag_last for consumer in lags} == lags
