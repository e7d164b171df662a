import datetime as dt
import threading
from collections import Counter
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
from karrot.history.delta_tables import DataFile
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.schemas_and_conversions import DERIVED, INCIDENTS, TABLES, with_day
from karrot.pipeline.store.compact_and_expire import Compacted, compact
from karrot.pipeline.store.table_files import Tables, UnreadableTable, read_note
from support.pipeline.event_rows import event_of_row, event_row, frame_of_rows, write_events
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.comparison import assert_equal_tables
from support.pipeline.row_times import MIDNIGHT
from support.pipeline.table_files import files_of, incident_row

DAY = MIDNIGHT.date()
DAYS = [DAY + dt.timedelta(days=number) for number in range(4)]
_A_DAY = 86_400
_WITHOUT_FOLDERS = "COLUMNS(lambda name: name NOT IN ('batch_id', 'piece'))"

Rows = list[dict[str, Any]]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path))


def _land(tables: Tables, batch: str, rows: Rows) -> None:
    write_events(Path(tables.directory), batch, rows)


def _rows(tables: Tables, name: str, columns: str = _WITHOUT_FOLDERS, where: str = "true") -> list[tuple[Any, ...]]:
    """Read a table with another engine, as it is kept in ``tables``, or its newest version."""
    kept = tables.kept.get(name)
    files = files_of(Path(tables.directory), name)
    if kept is not None:
        files = [tables.path(name, file.path) for file in kept]
    query = f"SELECT {columns} FROM read_parquet({files}, hive_partitioning=true) WHERE {where} ORDER BY ALL"
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall() if files else []


def _state(tables: Tables) -> dict[str, list[tuple[Any, ...]]]:
    return {name: _rows(tables, name) for name in DERIVED}


def _incidents(tables: Tables) -> list[tuple[Any, ...]]:
    columns = "incident_id, day::VARCHAR, strftime(started_at, '%d %H:%M'), strftime(ended_at, '%d %H:%M')"
    found = _rows(tables, "incidents", f"started_at, {columns}, ended_by, events")
    return [row[1:] for row in found]


def _every_five_minutes(first: float, until: float, word: str, incident_id: str | None = None, **columns: Any) -> Rows:
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
            **columns,
        )
        for at in looks
    ]


def _four_days() -> Rows:
    """Return events: OK, an incident from 23:00 on the first day to 01:00 on the third, then OK.

    The incident of another group ends on the fourth day. A third group is well around the second and the third
    midnight, and for a moment of the fourth day.
    """
    return [
        *_every_five_minutes(_A_DAY - 7_200, _A_DAY - 3_600, "ok"),
        *_every_five_minutes(_A_DAY - 3_600, 2 * _A_DAY + 3_600, "warn", "i"),
        event_row(2 * _A_DAY + 3_600, "close", "i"),
        *_every_five_minutes(2 * _A_DAY + 3_900, 2 * _A_DAY + 7_200, "ok"),
        event_row(2 * _A_DAY + 79_200, "warn", "k", consumer="h"),
        event_row(3 * _A_DAY + 300, "close", "k", consumer="h"),
        *_every_five_minutes(_A_DAY + 150, _A_DAY + 1_500, "ok", consumer="steady", log_id="another"),
        *_every_five_minutes(2 * _A_DAY - 1_500, 2 * _A_DAY + 1_500, "ok", consumer="steady", log_id="another"),
        *_every_five_minutes(3 * _A_DAY, 3 * _A_DAY + 600, "ok", consumer="steady", log_id="another"),
    ]


def test_changed_days_are_derived_again(
    spark: SparkSession, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test adds to one history step by step, because each step needs a run."""
    # A command's own session would end that of all tests.
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    rows = _four_days()
    # The first two days; the incident spans midnight and is open.
    first_two = [row for row in rows if row["day"] in DAYS[:2]]
    _land(tables, "b-0", first_two[:200])
    _land(tables, "b-0-rest", first_two[200:])
    assert derive(spark, tables, DeriveRules()) == DAYS[:2]
    assert derive(spark, tables, DeriveRules()) == []
    assert _incidents(tables) == [("i", "2026-11-20", "20 23:00", None, None, 300)]
    assert {(file.day, file.piece) for file in tables.files(spark, "lag_minute")} == {
        *((DAYS[0], 0), *((DAYS[1], hour) for hour in (0, 6, 12, 18)))
    }

    # Its end comes with the third day, and is written into the first. Some events of the third day come twice.
    later = [row for row in rows if row["day"] in DAYS[2:]]
    _land(tables, "b-1", later)
    _land(tables, "b-1-again", [row for row in later if row["consumer"] == "steady" and row["day"] == DAYS[2]])
    assert derive(spark, tables, DeriveRules()) == DAYS[2:]
    assert _incidents(tables) == [
        ("i", "2026-11-20", "20 23:00", "22 01:00", "close", 313),
        ("k", "2026-11-22", "22 22:00", "23 00:05", "close", 2),
    ]
    assert _intervals(tables) == [
        ("2026-11-20", "OK", "20 22:00", "20 23:00"),
        ("2026-11-20", "WARN", "20 23:00", "21 00:00"),
        ("2026-11-21", "WARN", "21 00:00", "22 00:00"),
        ("2026-11-22", "WARN", "22 00:00", "22 01:00"),
        ("2026-11-22", "OK", "22 01:00", "22 02:00"),
    ]
    assert _noted(spark, tables) == ({*DAYS}, set())
    assert _steady_rates(tables) == {DAYS[1]: 46, DAYS[2]: 20, DAYS[3]: 5}

    # Events of the first day arrive late, while compact merges the files of two days: only the first is derived again.
    late = [
        event_row(_A_DAY - 1_000, "close", "i"),
        event_row(_A_DAY - 990, "err", "j"),
        *_every_five_minutes(_A_DAY - 150, _A_DAY, "ok", consumer="steady", log_id="another"),
    ]

    class GetsALateBatch(Tables):
        def merge(self, *asked: Any) -> Any:
            _land(tables, "b-2", late)
            return super().merge(*asked)

    compact(spark, GetsALateBatch(tables.directory), keep=dt.timedelta(days=400), today=DAYS[2])
    assert Counter(file.day for file in tables.files(spark, "events")) == {DAY: 2, DAYS[1]: 1, DAYS[2]: 2, DAYS[3]: 1}
    # A reader during the runs sees the day either before or after the change.
    with _reading(tables) as seen:
        _interrupt(spark, tables)
        assert _command(tables, "derive") == "derived 1 day, 2026-11-20 to 2026-11-20\n"
    assert seen == {(24, 24), (26, 27)}
    assert _noted(spark, tables) == ({*DAYS[:3]}, set())
    assert _state(tables.together(spark)) == _state(tables)
    # The first incident was over for a time, so there are two incidents. The end of the last one was removed.
    of_three_days = [
        ("i", "2026-11-20", "20 23:00", "20 23:43", "close"),
        ("j", "2026-11-20", "20 23:43", "22 01:00", "recovered"),
        ("k", "2026-11-22", "22 22:00", None, None),
    ]
    assert [row[:5] for row in _incidents(tables)] == of_three_days
    # The rates beside the changed midnight were derived again too, for which a run reads the day after it.
    assert _steady_rates(tables) == {DAY: 3, DAYS[1]: 48, DAYS[2]: 20}

    # After all these runs, each row of each table is as calculated from the events.
    events = [event_of_row(row) for row in [*rows, *late] if row["day"] != DAYS[3]]
    assert_equal_tables(tmp_path, derived_tables(events, Records(), Rules()))

    # The incident j lasted into the kept days; i did not. Merging small files derives nothing again.
    assert compact(spark, tables, keep=dt.timedelta(days=2), today=DAYS[3]) == Compacted(4, 2, [DAY])
    assert _command(tables, "compact", "--keep", "3650d") == "merged 0 files into 0, dropped 0 days\n"
    assert _command(tables, "derive") == "nothing changed\n"
    assert [row[:5] for row in _incidents(tables)] == of_three_days[1:]
    assert {name for name in TABLES if DAY in tables.days(spark, name)} == {"incidents"}


def _steady_rates(tables: Tables) -> Counter[dt.date]:
    """Return the number of minutes of each day for which the steady group has rates."""
    return Counter(row[-1] for row in _rows(tables, "rates_minute") if row[1] == "steady")


def _intervals(tables: Tables) -> list[tuple[str, ...]]:
    found = [
        (str(row[-1]), row[2], f"{row[3]:%d %H:%M}", f"{row[4]:%d %H:%M}")
        for row in _rows(tables, "status_intervals")
        if row[1] == "g"
    ]
    return sorted(found, key=lambda interval: interval[2])


def _interrupt(spark: SparkSession, tables: Tables) -> None:
    """End a run for the first day early. The day is unfinished until the next run, also after other commands.

    Until then, a reader of several tables sees those of the last run that ended.
    """
    before = _state(tables)
    with pytest.raises(InterruptedError):
        derive(spark, DiesAtTheSecond(tables.directory), DeriveRules())
    assert len(_rows(tables, "lag_minute")) == len(before["lag_minute"]) + 2
    assert _state(tables) | {"lag_minute": before["lag_minute"]} == before
    assert _state(tables.together(spark)) == before
    assert _noted(spark, tables) == ({*DAYS[1:]}, {DAY})
    compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[2])
    assert _noted(spark, tables) == ({*DAYS[1:]}, {DAY})

    # A removed day disappears from every table; a day that is requested again has the same rows as before.
    for name in ("events", "partitions"):
        tables.drop_days(spark, name, {DAYS[3]})
    lag = _rows(tables, "lag_minute")
    requested = ["derive", "--day", str(DAYS[2]), "--day", str(DAYS[3])]
    assert _command(tables, *requested) == "derived 2 days, 2026-11-22 to 2026-11-23\n"
    assert _rows(tables, "lag_minute") == [row for row in lag if row[-1] != DAYS[3]]
    assert _noted(spark, tables) == ({*DAYS[1:3]}, {DAY})
    assert _state(tables.together(spark)) == before


def _noted(spark: SparkSession, tables: Tables) -> tuple[set[dt.date], set[dt.date]]:
    """The days that are finished, and those that the next run derives again."""
    note = read_note(spark, tables)
    return {*note.days}, {*note.unfinished}


class DiesAtTheSecond(Tables):
    """Tables that end the run at the second written table, before its files are committed."""

    def _commit(self, spark: SparkSession, name: str, *asked: Any, **options: Any) -> list[DataFile]:
        if name != "lag_minute":
            raise InterruptedError
        return super()._commit(spark, name, *asked, **options)


@contextmanager
def _reading(tables: Tables) -> Iterator[set[tuple[Any, ...]]]:
    """Collect the rows and events of the first day that a reader of a minute table sees during other work."""
    seen: set[tuple[Any, ...]] = set()
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.1):
            seen.update(_rows(tables, "lag_minute", "count(*), sum(count)::INT", where=f"day = '{DAY}'"))

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield seen
        finally:
            ended.set()
            reader.result()


def _command(tables: Tables, command: str, *options: str) -> str:
    asked = ["--once", "--only", command, "--tables", tables.directory, *options]
    ended = CliRunner().invoke(main, ["pipeline", "run", *asked])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_compact_keeps_the_incidents_that_last_into_the_kept_days(spark: SparkSession, tables: Tables) -> None:
    ended = {"over": 1_439, "lasting": 1_440, "open": None}
    rows = [incident_row(5, until, name, day=DAY, topics=[]) for name, until in ended.items()]
    tables.replace_days(frame_of_rows(spark, with_day(INCIDENTS), rows), "incidents", [DAY])
    assert compact(spark, tables, keep=dt.timedelta(days=1), today=DAYS[2]).dropped == []
    assert {row[0] for row in _rows(tables, "incidents")} == {"lasting", "open"}
    assert compact(spark, tables, keep=dt.timedelta(days=1), today=DAYS[3]).dropped == []
    assert {row[0] for row in _rows(tables, "incidents")} == {"open"}


def test_a_run_without_events_derives_nothing(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert derive(spark, tables, DeriveRules()) == []
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    ended = CliRunner().invoke(main, ["pipeline", "run", "--only=derive", f"--tables={tables.directory}/misspelt"])
    assert (ended.exit_code, ended.stderr.startswith(f"karrot: {tables.directory}/misspelt: no such dir")) == (2, True)


def test_other_files_among_the_tables_are_ignored(spark: SparkSession, tables: Tables) -> None:
    for name in ("events", "lag_minute"):
        Path(tables.directory, name, "day=someday").mkdir(parents=True)
    Path(tables.directory, "_derived.json").write_text('{"rules": "torn by a fai')
    assert derive(spark, tables, DeriveRules()) == []
    assert compact(spark, tables, keep=dt.timedelta(days=400), today=DAY).dropped == []


def test_an_empty_file_is_refused_and_not_read_as_having_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "the tables"))
    _land(tables, "b-0", [event_row(0, "ok")])
    _land(tables, "b-1", [event_row(60, "ok")])
    file = Path(files_of(Path(tables.directory), "events")[0])
    file.write_bytes(b"")
    with pytest.raises(UnreadableTable, match="has 0 bytes of"):
        derive(spark, tables, DeriveRules())
    with pytest.raises(UnreadableTable, match="has 0 bytes of"):
        compact(spark, tables, keep=dt.timedelta(days=400), today=DAYS[3])
    assert file.exists()
