import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.jobs.compact import compact
from karrot.pipeline.jobs.derive import Rules, derive
from karrot.pipeline.schemas import DERIVED
from karrot.pipeline.tables import Tables
from support.histories import MIDNIGHT, events_frame, partitions_frame, said

DAY = MIDNIGHT.date()
DAYS = [DAY + dt.timedelta(days=number) for number in range(4)]
_A_DAY = 86_400

Rows = list[dict[str, Any]]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path))


def _land(spark: SparkSession, tables: Tables, batch: str, rows: Rows) -> None:
    tables.write_batch(events_frame(spark, rows), "events", batch)
    tables.write_batch(partitions_frame(spark, rows), "partitions", batch)


def _rows(tables: Tables, name: str) -> list[tuple[Any, ...]]:
    """A table as another engine reads it."""
    files = f"{tables.directory}/{name}/*/*.parquet"
    return _queried(f"SELECT * FROM read_parquet('{files}', hive_partitioning=true) ORDER BY ALL")


def _queried(query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def _state(tables: Tables) -> dict[str, list[tuple[Any, ...]]]:
    return {name: _rows(tables, name) for name in DERIVED if list(Path(tables.directory, name).glob("day=*"))}


def _incidents(tables: Tables) -> list[tuple[Any, ...]]:
    return _queried(
        "SELECT incident_id, day::VARCHAR, strftime(started_at, '%d %H:%M'), strftime(ended_at, '%d %H:%M'), "
        "ended_by, events "
        f"FROM read_parquet('{tables.directory}/incidents/*/*.parquet', hive_partitioning=true) ORDER BY started_at"
    )


def _every_five_minutes(first: float, until: float, word: str, incident_id: str | None = None) -> Rows:
    looks = range(int(first), int(until), 300)
    return [
        said(
            at,
            word,
            incident_id,
            total_lag=at // 300,
            topics=["t"] if incident_id else [],
            listed=[
                {"topic": "t", "partition": 1, "end_offset": at, "current_lag": 60 if incident_id else 0, "owner": "o"}
            ],
            partition_count=2 if incident_id else 1,
            lag_seconds=90.0 if incident_id else 0.0,
        )
        for at in looks
    ]


def _three_days() -> Rows:
    """Well; at 23:00 on the first day an incident, until 01:00 on the third; well again."""
    return [
        *_every_five_minutes(_A_DAY - 7_200, _A_DAY - 3_600, "ok"),
        *_every_five_minutes(_A_DAY - 3_600, 2 * _A_DAY + 3_600, "warn", "i"),
        said(2 * _A_DAY + 3_600, "close", "i"),
        *_every_five_minutes(2 * _A_DAY + 3_900, 2 * _A_DAY + 7_200, "ok"),
    ]


def test_days_are_derived_as_they_change(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """One history, told in turns: each of them costs a run."""
    rows = _three_days()
    # The first two days; the incident spans their midnight and is open.
    _land(spark, tables, "b-0", [row for row in rows if row["day"] in DAYS[:2]])
    assert derive(spark, tables, Rules()) == DAYS[:2]
    assert derive(spark, tables, Rules()) == []
    assert _incidents(tables) == [("i", "2026-11-20", "20 23:00", None, None, 300)]
    assert {path.name for path in Path(tables.directory, "incidents").iterdir()} == {"day=2026-11-20"}

    # Its end comes with the third day, and is written into the first.
    _land(spark, tables, "b-1", [row for row in rows if row["day"] == DAYS[2]])
    assert derive(spark, tables, Rules()) == [DAYS[2]]
    assert _incidents(tables) == [("i", "2026-11-20", "20 23:00", "22 01:00", "close", 313)]
    intervals = [
        (str(row[-1]), row[2], f"{row[3]:%d %H:%M}", f"{row[4]:%d %H:%M}") for row in _rows(tables, "status_intervals")
    ]
    assert sorted(intervals, key=lambda interval: interval[2]) == [
        ("2026-11-20", "OK", "20 22:00", "20 23:00"),
        ("2026-11-20", "WARN", "20 23:00", "21 00:00"),
        ("2026-11-21", "WARN", "21 00:00", "22 00:00"),
        ("2026-11-22", "WARN", "22 00:00", "22 01:00"),
        ("2026-11-22", "OK", "22 01:00", "22 01:55"),
    ]

    # The same events in one go, and some of them twice: the same tables.
    at_once = Tables(str(tmp_path / "at-once"))
    _land(spark, at_once, "b-0", rows)
    _land(spark, at_once, "b-1", rows[40:70])
    derive(spark, at_once, Rules())
    assert _state(at_once) == _state(tables)

    # What happened in the middle comes late: the incident was over for a time, which is another incident.
    _land(spark, tables, "b-2", [said(_A_DAY - 1_000, "close", "i"), said(_A_DAY - 990, "err", "j")])
    assert derive(spark, tables, Rules()) == [DAY]
    assert [row[:5] for row in _incidents(tables)] == [
        ("i", "2026-11-20", "20 23:00", "20 23:43", "close"),
        ("j", "2026-11-20", "20 23:43", "22 01:00", "recovered"),
    ]

    # Small files become one; nothing is to be derived for that, and the tables would be the same.
    before = _state(tables)
    assert compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[3]).files_after > 0
    assert len(list(Path(tables.directory, "events", f"day={DAY}").rglob("*.parquet"))) == 1
    assert derive(spark, tables, Rules()) == []
    assert derive(spark, tables, Rules(), only=[DAY]) == [DAY]
    assert _state(tables) == before

    # A day that was removed leaves every table.
    tables.drop_day(spark, "events", DAYS[2])
    tables.drop_day(spark, "partitions", DAYS[2])
    assert derive(spark, tables, Rules()) == [DAYS[2]]
    assert {str(row[-1]) for row in _rows(tables, "lag_minute")} == {"2026-11-20", "2026-11-21"}
    assert _incidents(tables)[-1][3:5] == (None, None)

    compact(spark, tables, keep=dt.timedelta(days=2), today=DAYS[3])
    assert {path.name for path in Path(tables.directory).glob("*/day=*")} == {"day=2026-11-21"}


def test_an_interrupted_run_leaves_whole_days_and_is_made_up_for(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    _land(spark, tables, "b-0", _every_five_minutes(0, 3_600, "ok"))
    derive(spark, tables, Rules())
    before = _rows(tables, "lag_minute")
    _land(spark, tables, "b-1", _every_five_minutes(3_600, 7_200, "ok"))

    seen: list[int] = []
    monkeypatch.setattr(
        Tables, "_replace", _dies_after(2, Tables._replace, lambda: seen.append(len(_rows(tables, "lag_minute"))))
    )
    with pytest.raises(KeyboardInterrupt):
        derive(spark, tables, Rules())
    monkeypatch.undo()

    assert seen[0] == len(before) == 12
    assert (len(_rows(tables, "lag_minute")), len(_rows(tables, "verdict_runs"))) == (24, 1)
    assert _rows(tables, "verdict_runs")[0][8] == 12
    assert derive(spark, tables, Rules()) == [DAY]
    assert _rows(tables, "verdict_runs")[0][8] == 24
    assert not list(Path(tables.directory, ".staging").iterdir())


def _dies_after(times: int, replace: Callable[..., None], look: Callable[[], object]) -> Callable[..., None]:
    left = [times]

    def dying(*given: Any) -> None:
        look()
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        replace(*given)

    return dying


def test_without_events_there_is_nothing_to_derive(spark: SparkSession, tables: Tables) -> None:
    assert derive(spark, tables, Rules()) == []
