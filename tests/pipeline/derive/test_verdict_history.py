"""Incidents that are derived day after day equal the incidents that are derived from all days at once."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.derive.status_intervals import verdict_runs
from karrot.pipeline.derive.status_intervals_and_incidents import derive_history
from karrot.pipeline.schemas_and_conversions import SUMMARIES
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_of_row, event_row, events_frame, partitions_frame
from support.pipeline.expected_tables.comparison import differences, table_rows
from support.pipeline.expected_tables.verdicts import incidents, status_intervals
from support.pipeline.row_times import DAY, second_at

SILENCE = dt.timedelta(seconds=300)
DAYS = [DAY + dt.timedelta(days=number) for number in range(4)]

Rows = list[dict[str, Any]]


def _anything(rng: Random, consumer: str) -> Rows:
    """Draw events of a group over four days, with any statuses, ids, silences and late events."""
    seconds = rng.uniform(0, 86_400)
    rows: Rows = []
    while len(rows) < 30:
        seconds += rng.choice([0, 30, 60, 299.999, 300, 300.001, 900, 7_000, 20_000, 50_000])
        word = rng.choice(["ok", "warn", "warn", "warn", "err", "err", "close", "gone", "odd"])
        named = word in ("close", "odd") or (word in ("warn", "err") and rng.random() < 0.6)
        row = event_row(
            seconds,
            word,
            rng.choice("abcdef") if named else None,
            consumer=consumer,
            late=rng.choice([0, 0, 0, 45, 4_000]),
            total_lag=rng.choice([None, rng.randint(0, 99)]),
            topics=rng.sample(["t1", "t2", "t3"], rng.randint(0, 2)),
            incident_start=second_at(seconds - rng.choice([7, 90_000])) if named and rng.random() < 0.3 else None,
        )
        if row["day"] > DAYS[-1]:
            break
        rows.append(row)
    return rows


def _write_runs(spark: SparkSession, tables: Tables, rows: Rows, days: Iterable[dt.date]) -> None:
    of_days = [row for row in rows if row["day"] in days]
    runs = verdict_runs(events_frame(spark, of_days), partitions_frame(spark, of_days), silence=SILENCE)
    tables.replace_days(runs, "verdict_runs", days)


def _summaries(spark: SparkSession, tables: Tables) -> dict[dt.date, str]:
    """The file of each summary, by the last day whose runs it has."""
    return {file.day: file.path for file in tables.files(spark, SUMMARIES)}


def _named_on_the_fourth_day() -> Rows:
    """An incident of three days that gets an id and its start on the fourth, and one that never gets them."""
    every_200_s, names = range(1_000, 3 * 86_400, 200), ("named late", "stays nameless")
    rows = [event_row(seconds, "warn", None, consumer=name) for name in names for seconds in every_200_s]
    return [*rows, event_row(3 * 86_400 + 50, "err", "a", consumer="named late", incident_start=second_at(40))]


@pytest.mark.parametrize("groups", [60, pytest.param(300, marks=pytest.mark.deep)])
def test_incidents_day_after_day_equal_those_of_all_days_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    rng = Random(7)
    random_rows = [row for number in range(groups) for row in _anything(rng, f"g{number}")]
    # These events of the third day come when the fourth day is derived.
    late = [row["seq"] for row in random_rows if row["day"] == DAYS[2] and rng.random() < 0.2]
    rows = random_rows + _named_on_the_fourth_day()
    rows += [event_row(day * 86_400 + 86_300, "warn", "z", consumer="never well") for day in range(len(DAYS))]
    rows += [event_row(day * 86_400 + 100, "warn", "z", consumer="killed") for day in range(len(DAYS))]
    in_time = [row for row in rows if row["seq"] not in {*late}]
    tables = Tables(str(tmp_path))
    read: set[dt.date] = set()
    read_days = Tables.read

    def recorded(self: Tables, session: SparkSession, name: str, **options: Any) -> Any:
        if name == "verdict_runs":
            read.update(options["days"])
        return read_days(self, session, name, **options)

    monkeypatch.setattr(Tables, "read", recorded)
    for days in (DAYS[:3], DAYS[3:]):
        _write_runs(spark, tables, in_time, days)
        read.clear()
        derive_history(spark, tables, days, silence=SILENCE)
    # A run of the running day reads the days that its intervals depend on, and no older ones.
    assert read & {*DAYS} == {*DAYS[1:]}
    summaries = _summaries(spark, tables)
    assert sorted(summaries) == DAYS[:2]
    _assert_derived(tmp_path, in_time)
    found = table_rows(tmp_path, "incidents")
    assert {row["ended_by"] for row in found} == {"close", "recovered", "new_incident", "deleted", "silence", None}
    of_group = Counter(row["consumer"] for row in found)
    assert (of_group["named late"], of_group["stays nameless"]) == (1, 1)

    _write_runs(spark, tables, rows, [DAYS[2]])
    derive_history(spark, tables, [DAYS[2]], silence=SILENCE)
    assert _summaries(spark, tables) == summaries

    # No summary with runs of an unfinished day is used.
    rows.append(event_row(86_400 + 200, "close", "z", consumer="killed"))
    _write_runs(spark, tables, rows, [DAYS[1]])  # the run was killed after this
    derive_history(spark, tables, [DAYS[3]], silence=SILENCE, unfinished=[DAYS[1]])
    again = _summaries(spark, tables)
    assert again.keys() == summaries.keys()
    assert {day for day, file in again.items() if summaries[day] != file} == {DAYS[1]}
    # That run left the intervals of the unfinished day to the next one.
    _assert_derived(tmp_path, rows, but="killed")

    # Summaries of another silence are dropped.
    derive_history(spark, tables, [DAYS[3]], silence=2 * SILENCE)
    assert {file.batch_id for file in tables.files(spark, SUMMARIES)} == {"silence-600000ms"}


def test_a_verdict_of_a_clock_that_is_ahead_ends_no_incident_of_another_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [event_row(100, "err", "a", consumer="open"), event_row(150, "ok", None, consumer="newest")]
    rows.append(event_row(100 * 365 * 86_400, "ok", None, consumer="ahead"))
    tables, days = Tables(str(tmp_path)), sorted({row["day"] for row in rows})
    _write_runs(spark, tables, rows, days)
    derive_history(spark, tables, days, silence=SILENCE)
    (found,) = table_rows(tmp_path, "incidents")
    assert (found["consumer"], found["ended_at"]) == ("open", None)


def _assert_derived(tables: Path, rows: Rows, *, but: str = "") -> None:
    """Both tables have the rows that plain Python finds. Leave out the intervals of one group."""
    events = [*map(event_of_row, rows)]
    silence_ms = SILENCE // dt.timedelta(milliseconds=1)
    expected = {"incidents": incidents(events, silence_ms), "status_intervals": status_intervals(events, silence_ms)}
    for name, wanted in expected.items():
        found = [
            [row for row in several if name == "incidents" or row["consumer"] != but]
            for several in (wanted, table_rows(tables, name))
        ]
        assert differences(name, *found) == []
