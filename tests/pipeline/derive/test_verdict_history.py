"""Incidents that are derived day after day equal the incidents that are derived from all days at once."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.derive.status_intervals import verdict_runs
from karrot.pipeline.derive.verdict_history import derive_history
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_row, events_frame, partitions_frame
from support.pipeline.row_times import DAY, second_at

SILENCE = dt.timedelta(seconds=300)
DAYS = [DAY + dt.timedelta(days=number) for number in range(5)]

Rows = list[dict[str, Any]]


def _anything(rng: Random, consumer: str) -> Rows:
    """Draw events of a group over five days, with any statuses, ids, silences and late events."""
    seconds = rng.uniform(0, 86_400)
    rows: Rows = []
    while len(rows) < 30:
        seconds += rng.choice([30, 60, 299.999, 300.001, 900, 7_000, 20_000, 50_000])
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


def _found(tables: Tables) -> dict[str, list[tuple[Any, ...]]]:
    def rows(name: str) -> list[tuple[Any, ...]]:
        files = f"{tables.directory}/{name}/*/*.parquet"
        with duckdb.connect() as connection:
            query = f"SELECT * FROM read_parquet('{files}', hive_partitioning=true) ORDER BY ALL"
            return connection.execute(query).fetchall()

    return {name: rows(name) for name in ("incidents", "status_intervals")}


def _summaries(tables: Tables) -> list[str]:
    return sorted(path.parent.name for path in Path(tables.directory, "_summaries").rglob("*.parquet"))


def test_incidents_day_after_day_equal_those_of_all_days_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(7)
    rows = [row for number in range(300) for row in _anything(rng, f"g{number}")]
    rows += [event_row(day * 86_400 + 86_300, "warn", "z", consumer="never well") for day in range(5)]
    # These events of the third day come when all later days are derived.
    late = [row for row in rows if row["day"] == DAYS[2] and rng.random() < 0.2]
    in_time = [row for row in rows if row not in late]
    grown, whole = Tables(str(tmp_path / "grown")), Tables(str(tmp_path / "whole"))

    for day in DAYS:
        _write_runs(spark, grown, in_time, [day])
        derive_history(spark, grown, [day], silence=SILENCE)
    until_the_day_before = [f"day={day - dt.timedelta(days=1)}" for day in DAYS]
    assert _summaries(grown) == until_the_day_before
    _write_runs(spark, whole, in_time, DAYS)
    derive_history(spark, whole, DAYS, silence=SILENCE)
    assert _found(grown) == _found(whole)
    ways = Counter(ended_by for *_, ended_by, _, _, _, _, _ in _found(whole)["incidents"])
    assert ways.keys() == {"close", "recovered", "new_incident", "deleted", "silence", None}

    _write_runs(spark, grown, rows, [DAYS[2]])
    derive_history(spark, grown, [DAYS[2]], silence=SILENCE)
    assert _summaries(grown) == until_the_day_before  # the last one was made again
    _write_runs(spark, whole, rows, [DAYS[2]])
    (tmp_path / "whole" / "_summaries").rename(tmp_path / "whole" / "_unused")
    derive_history(spark, whole, [DAYS[2]], silence=SILENCE)
    assert _found(grown) == _found(whole)

    # A run of the running day reads the days that its intervals depend on, and no older ones.
    read: set[dt.date] = set()
    read_days = Tables.read

    def recorded(self: Tables, session: SparkSession, name: str, **options: Any) -> Any:
        if name == "verdict_runs":
            read.update(options["days"])
        return read_days(self, session, name, **options)

    monkeypatch.setattr(Tables, "read", recorded)
    derive_history(spark, grown, [DAYS[4]], silence=SILENCE)
    assert read & {*DAYS} == {*DAYS[2:]}
    assert _found(grown) == _found(whole)


def test_an_incident_without_an_id_gets_one_days_later(spark: SparkSession, tmp_path: Path) -> None:
    every_200_s = range(1_000, 3 * 86_400, 200)
    rows = [event_row(seconds, "warn", None, consumer="orders") for seconds in every_200_s]
    rows += [event_row(seconds, "warn", None, consumer="stays nameless") for seconds in every_200_s]
    rows += [event_row(3 * 86_400 + 50, "err", "a", consumer="orders", incident_start=second_at(40))]
    grown, whole = Tables(str(tmp_path / "grown")), Tables(str(tmp_path / "whole"))
    for day in DAYS[:4]:
        _write_runs(spark, grown, rows, [day])
        derive_history(spark, grown, [day], silence=SILENCE)
    _write_runs(spark, whole, rows, DAYS[:4])
    derive_history(spark, whole, DAYS[:4], silence=SILENCE)
    assert _found(grown) == _found(whole)
    assert len(_found(whole)["incidents"]) == 2


def test_no_summary_with_runs_of_an_unfinished_day_is_used(spark: SparkSession, tmp_path: Path) -> None:
    first = [event_row(day * 86_400 + 100, "warn", "z", consumer="orders") for day in range(3)]
    grown, whole = Tables(str(tmp_path / "grown")), Tables(str(tmp_path / "whole"))
    for day in DAYS[:3]:
        _write_runs(spark, grown, first, [day])
        derive_history(spark, grown, [day], silence=SILENCE)
    late = [*first, event_row(86_400 + 200, "close", "z", consumer="orders")]
    _write_runs(spark, grown, late, [DAYS[1]])  # the run was killed after this
    derive_history(spark, grown, [DAYS[2]], silence=SILENCE, unfinished=[DAYS[1]])
    _write_runs(spark, whole, late, DAYS[:3])
    derive_history(spark, whole, DAYS[:3], silence=SILENCE)
    assert _found(grown)["incidents"] == _found(whole)["incidents"]
