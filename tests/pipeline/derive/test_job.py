import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from karrot.cli import main
from karrot.history.held_days import finished
from karrot.history.stored.tables_in_folder import TablesInFolder
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.schemas import DERIVED
from karrot.pipeline.store.compact import compact
from karrot.pipeline.store.table_files import Tables, days_present
from support.pipeline.event_rows import event_row, events_frame, partitions_frame
from support.pipeline.row_times import MIDNIGHT

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
    """Read a table with another engine."""
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
        event_row(
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
    """Return events: OK, an incident from 23:00 on the first day to 01:00 on the third, then OK again."""
    return [
        *_every_five_minutes(_A_DAY - 7_200, _A_DAY - 3_600, "ok"),
        *_every_five_minutes(_A_DAY - 3_600, 2 * _A_DAY + 3_600, "warn", "i"),
        event_row(2 * _A_DAY + 3_600, "close", "i"),
        *_every_five_minutes(2 * _A_DAY + 3_900, 2 * _A_DAY + 7_200, "ok"),
    ]


def test_changed_days_are_derived_again(
    spark: SparkSession, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test adds to one history step by step, because each step needs a run."""
    rows = _three_days()
    # The first two days; the incident spans midnight and is open.
    _land(spark, tables, "b-0", [row for row in rows if row["day"] in DAYS[:2]])
    assert derive(spark, tables, DeriveRules()) == DAYS[:2]
    assert derive(spark, tables, DeriveRules()) == []
    assert _incidents(tables) == [("i", "2026-11-20", "20 23:00", None, None, 300)]
    assert {str(path.relative_to(tables.directory)) for path in Path(tables.directory, "incidents").rglob("*.*")} == {
        "incidents/day=2026-11-20/incidents.parquet"
    }

    # Its end comes with the third day and is written into the first. The next run repairs an interrupted one.
    _land(spark, tables, "b-1", [row for row in rows if row["day"] == DAYS[2]])
    before = _state(tables)
    with pytest.raises(InterruptedError):
        derive(spark, DiesAtTheSecond(tables.directory), DeriveRules())
    assert len(_rows(tables, "lag_minute")) == len(before["lag_minute"]) + 24
    assert _state(tables) | {"lag_minute": before["lag_minute"]} == before
    assert not list(Path(tables.directory, ".staging").iterdir())
    assert derive(spark, tables, DeriveRules()) == [DAYS[2]]
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

    # An event from the middle arrives late: the incident was over for a time, so there are two incidents. A reader
    # during the run sees the day either before or after the change.
    late = [event_row(_A_DAY - 1_000, "close", "i"), event_row(_A_DAY - 990, "err", "j")]
    _land(spark, tables, "b-2", late)
    with _reading(f"{tables.directory}/lag_minute/day={DAY}/*.parquet") as seen:
        assert derive(spark, tables, DeriveRules()) == [DAY]
    assert seen <= {(24, 24), (25, 26)}
    assert len(seen) == 2
    assert [row[:5] for row in _incidents(tables)] == [
        ("i", "2026-11-20", "20 23:00", "20 23:43", "close"),
        ("j", "2026-11-20", "20 23:43", "22 01:00", "recovered"),
    ]

    # The same events in one run, some of them twice, give the same tables.
    at_once = Tables(str(tmp_path / "at-once"))
    _land(spark, at_once, "b-0", [*rows, *late])
    _land(spark, at_once, "b-1", rows[40:70])
    derive(spark, at_once, DeriveRules())
    whole = _state(tables)
    assert _state(at_once) == whole

    # Merging small files derives nothing again. A removed day disappears from every table; a day that is requested
    # again has the same rows as before.
    compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[3])
    assert len(list(Path(tables.directory, "events", f"day={DAY}").rglob("*.parquet"))) == 1
    assert derive(spark, tables, DeriveRules()) == []
    for name in ("events", "partitions"):
        tables.drop_day(spark, name, DAYS[2])
    monkeypatch.setattr(
        SparkSession, "stop", lambda _self: None
    )  # the command's own session would end that of all tests
    derived = ["derive", "--day", str(DAY), "--day", str(DAYS[2])]
    assert _command(tables, *derived) == "derived 2 days, 2026-11-20 to 2026-11-22\n"
    assert _rows(tables, "lag_minute") == [row for row in whole["lag_minute"] if row[-1] != DAYS[2]]
    assert _incidents(tables)[-1][3:5] == (None, None)
    assert _command(tables, "derive") == "nothing changed\n"

    assert _command(tables, "compact", "--keep", "3650d") == "merged 0 files into 0, dropped 0 days\n"
    assert compact(spark, tables, keep=dt.timedelta(days=2), today=DAYS[3]).dropped == [DAY]
    # Without the third day j has no end, so it overlaps the kept days; i does not.
    assert {(path.parent.name == "incidents", path.name) for path in Path(tables.directory).glob("*/day=*")} == {
        (True, "day=2026-11-20"),
        (False, "day=2026-11-21"),
    }
    assert [row[:5] for row in _incidents(tables)] == [("j", "2026-11-20", "20 23:43", None, None)]


def test_a_batch_that_arrives_while_compact_runs_is_derived_later(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def present_before_the_batch(session: SparkSession, place: Tables) -> dict[dt.date, str]:
        found = days_present(session, place)
        _land(spark, tables, "b-1", _every_five_minutes(3_600, 7_200, "warn", "i"))
        return found

    _land(spark, tables, "b-0", _every_five_minutes(0, 3_600, "ok"))
    derive(spark, tables, DeriveRules())
    monkeypatch.setattr("karrot.pipeline.store.compact.days_present", present_before_the_batch)
    compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[3])
    assert derive(spark, tables, DeriveRules()) == [DAY]
    assert [row[0] for row in _incidents(tables)] == ["i"]


def test_a_day_that_a_run_did_not_finish_is_not_held_until_the_next_run(spark: SparkSession, tables: Tables) -> None:
    """``verdict_runs`` of such a day may be from this run, and ``incidents`` from the run before."""
    directory = Path(tables.directory)
    _land(spark, tables, "b-0", _every_five_minutes(0, 7_200, "ok"))
    _land(spark, tables, "b-1", _every_five_minutes(_A_DAY, _A_DAY + 7_200, "ok"))
    derive(spark, tables, DeriveRules())
    assert finished(TablesInFolder(directory).note()) == set(DAYS[:2])
    _land(spark, tables, "b-2", _every_five_minutes(7_200, 9_000, "warn", "i"))
    with pytest.raises(InterruptedError):
        derive(spark, DiesAtTheSecond(tables.directory), DeriveRules())
    assert finished(TablesInFolder(directory).note()) == {DAYS[1]}
    compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[3])
    assert finished(TablesInFolder(directory).note()) == {DAYS[1]}

    # A run for another day alone does not change it, and it is derived again if its files are gone.
    assert derive(spark, tables, DeriveRules(), only=[DAYS[1]]) == [DAYS[1]]
    assert finished(TablesInFolder(directory).note()) == {DAYS[1]}
    for name in ("events", "partitions"):
        tables.drop_day(spark, name, DAY)
    assert derive(spark, tables, DeriveRules()) == [DAY]
    assert finished(TablesInFolder(directory).note()) == {DAYS[1]}
    assert {path.name for path in directory.glob("lag_minute/day=*")} == {f"day={DAYS[1]}"}
    assert derive(spark, tables, DeriveRules()) == []


def test_rates_next_to_a_changed_midnight_are_kept_if_the_next_day_has_repeated_events(
    spark: SparkSession, tables: Tables
) -> None:
    """The first day changes near its midnight, so the rates of the second are derived, also from the third."""
    rows = _every_five_minutes(2 * _A_DAY - 1_500, 2 * _A_DAY + 1_500, "ok")
    _land(spark, tables, "b-0", rows)
    _land(spark, tables, "b-1", [row for row in rows if row["day"] == DAYS[2]])
    derive(spark, tables, DeriveRules())
    before = _rows(tables, "rates_minute")
    assert [row[-1] for row in before] == [DAYS[1]] * 25 + [DAYS[2]] * 20

    _land(spark, tables, "b-2", _every_five_minutes(_A_DAY - 300, _A_DAY, "ok"))
    assert derive(spark, tables, DeriveRules()) == [DAY]
    assert _rows(tables, "rates_minute") == before


class DiesAtTheSecond(Tables):
    """Tables that end the run at the second written table, after its rows are staged."""

    def _replace(self, spark: SparkSession, name: str, day: str, file: str, staged: str) -> None:
        if name != "lag_minute":
            raise InterruptedError
        super()._replace(spark, name, day, file, staged)


@contextmanager
def _reading(files: str) -> Iterator[set[tuple[Any, ...]]]:
    """Collect the rows and events that a reader of a minute table sees during other work."""
    seen: set[tuple[Any, ...]] = set()
    ended = threading.Event()
    directory, pattern = Path(files).parent, Path(files).name

    def inodes() -> set[int]:
        return {path.stat().st_ino for path in directory.glob(pattern)}

    def read() -> None:
        while not ended.wait(0.1):
            before = inodes()
            try:
                seen.update(_queried(f"SELECT count(*), sum(count)::INT FROM read_parquet('{files}')"))
            except duckdb.Error:
                # DuckDB opens a file twice per query; karrot history repeats the query if the file was replaced.
                assert inodes() != before

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            seen.update(_queried(f"SELECT count(*), sum(count)::INT FROM read_parquet('{files}')"))
            yield seen
        finally:
            ended.set()
            reader.result()


def _command(tables: Tables, command: str, *options: str) -> str:
    ended = CliRunner().invoke(main, ["pipeline", command, "--tables", tables.directory, *options])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_a_run_without_events_derives_nothing(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert derive(spark, tables, DeriveRules()) == []
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    ended = CliRunner().invoke(main, ["pipeline", "derive", "--tables", f"{tables.directory}/misspelt"])
    assert (ended.exit_code, ended.stderr.startswith(f"karrot: {tables.directory}/misspelt: no such dir")) == (2, True)


def test_other_files_among_the_tables_are_ignored(spark: SparkSession, tables: Tables) -> None:
    for name in ("events", "lag_minute"):
        Path(tables.directory, name, "day=someday").mkdir(parents=True)
    Path(tables.directory, "_derived.json").write_text('{"rules": "torn by a fai')
    assert derive(spark, tables, DeriveRules()) == []
    assert compact(spark, tables, keep=dt.timedelta(days=400), today=DAY).dropped == []


def test_an_empty_file_is_refused_and_not_read_as_having_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "the tables"))
    _land(spark, tables, "b-0", [event_row(0, "ok")])
    _land(spark, tables, "b-1", [event_row(60, "ok")])
    [file] = Path(tables.directory, "events", f"day={DAY}", "batch_id=b-0").glob("*.parquet")
    file.write_bytes(b"")
    with pytest.raises(OSError, match="is empty, so it is damaged"):
        derive(spark, tables, DeriveRules())
    with pytest.raises(OSError, match="is empty, so it is damaged"):
        compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[3])
    assert file.exists()
