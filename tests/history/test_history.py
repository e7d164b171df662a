import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karrot.history.answers_and_errors import (
    GroupHistory,
    HistoryError,
    Incident,
    SeriesPoint,
    UnclearGroup,
)
from karrot.history.days_with_data import Days
from karrot.history.duckdb_reader import Duck, Row
from karrot.history.table_files_in_folder import TablesInFolder
from karrot.history.table_queries import History
from karrot.history.time_ranges import DayRange, TimeRange
from support.pipeline.row_times import DAY, minute_at
from support.pipeline.table_files import (
    incident_row,
    lag_minute_row,
    verdict_run_row,
    write_day,
    write_derived_days,
    write_rows,
)

NO_DATA = "has no data in directories day=YYYY-MM-DD"
HOUR = timedelta(hours=1)
WHOLE = TimeRange(minute_at(0), minute_at(3 * 1440))
ODD = [
    "it's",
    "a/b",
    'say "hi"',
    pytest.param("漢字 ", id="Chinese characters and a space"),
    "$consumer",
    "'; DROP TABLE t; --",
    "{table}",
    "back\\slash",
    pytest.param("", id="an empty name"),
    "nul\0",
]


def values(
    history: History, *metrics: str, span: TimeRange = WHOLE, step: timedelta = HOUR
) -> list[tuple[object, ...]]:
    return [(each.at, *each.values) for each in history.timeseries("g", span, metrics=metrics, granularity=step).points]


# Groups


def test_a_group_has_its_last_known_lag_its_bad_minutes_and_its_incidents(tables: Path, history: History) -> None:
    write_rows(
        tables,
        "lag_minute",
        [
            lag_minute_row(1, 5, lag_seconds_max=2.5),
            lag_minute_row(2, 90, "ERR", lag_max=95),
            lag_minute_row(1441, 7, "WARN"),
            lag_minute_row(1442, None),
            lag_minute_row(5, None, "NOTFOUND", consumer="gone"),
            lag_minute_row(4000, 10**6),
        ],
    )
    write_rows(
        tables,
        "incidents",
        [incident_row(2, 3), incident_row(1441, None), incident_row(-90, -80), incident_row(4000, None)],
    )
    write_rows(tables, "verdict_runs", [verdict_run_row(1), verdict_run_row(5, consumer="gone"), verdict_run_row(1441)])
    write_derived_days(tables, [DAY, DAY + timedelta(days=1)])
    span = TimeRange(minute_at(0), minute_at(1500))
    assert history.groups(span) == (
        GroupHistory("c", "g", minute_at(1), minute_at(1442), "OK", "ERR", 7, 95, 2.5, 4, 2, 2),
        GroupHistory("c", "gone", minute_at(5), minute_at(5), "NOTFOUND", "NOTFOUND", None, None, None, 1, 0, 0),
    )


def test_the_number_of_incidents_is_known_if_all_days_of_the_group_have_theirs(tables: Path, history: History) -> None:
    days = [DAY + timedelta(days=number) for number in range(3)]
    minutes = [lag_minute_row(1440 * number, 5, consumer=name) for name in ("h", "i") for number in (0, 1)]
    minutes += [
        lag_minute_row(0, 5),
        lag_minute_row(1440, 5, consumer="late"),
        lag_minute_row(2880, 5, worst_status=None),
    ]
    write_rows(tables, "lag_minute", minutes)
    write_rows(tables, "incidents", [incident_row(0, 1, consumer="i")])

    def told() -> tuple[dict[str, int | None], tuple[date, ...]]:
        return {each.group: each.incidents for each in history.groups(WHOLE)}, history.uncounted(WHOLE)

    nothing = {"g": None, "h": None, "i": 1, "late": None}
    assert told() == (nothing, tuple(days[:2]))
    runs = {(row["consumer"], row["minute"]) for row in minutes if row["worst_status"]}
    write_rows(
        tables,
        "verdict_runs",
        [verdict_run_row((at - minute_at(0)) / timedelta(minutes=1), consumer=name) for name, at in runs],
    )
    assert told() == (nothing, tuple(days[:2]))
    write_derived_days(tables, days[:1])
    assert told() == (nothing | {"g": 0}, (days[1],))
    assert history.uncounted(WHOLE, group="g") == ()
    write_derived_days(tables, days)
    assert told() == ({"g": 0, "h": 0, "i": 1, "late": 0}, ())


def test_incidents_that_derive_adds_after_they_were_counted_are_not_known(
    tables: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derive finishes the day as soon as the table of incidents has been read."""
    read = Duck.rows
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5, "ERR")])

    def rows(duck: Duck, table: str, *asked: Any) -> list[Row]:
        found = read(duck, table, *asked)
        if table == "incidents":
            write_rows(tables, "verdict_runs", [verdict_run_row(0)])
            write_rows(tables, "incidents", [incident_row(0, 1)])
            write_derived_days(tables, [DAY])
        return found

    monkeypatch.setattr(Duck, "rows", rows)
    assert [each.incidents for each in history.groups(WHOLE)] == [None]
    assert [each.incidents for each in history.groups(WHOLE)] == [1]


def test_groups_are_sorted_as_requested_with_unknown_lags_last(tables: Path, history: History) -> None:
    rows = [lag_minute_row(1, lag, consumer=name) for name, lag in (("a", 1), ("b", None), ("c", 9), ("d", 9))]
    write_rows(tables, "lag_minute", rows)
    largest = history.groups(WHOLE, order="lag")
    assert [each.group for each in largest] == ["c", "d", "a", "b"]
    assert history.groups(WHOLE, order="lag")[:2] == largest[:2]
    assert history.groups(WHOLE, group="a", cluster="c") == largest[2:3]
    assert history.groups(WHOLE, cluster="elsewhere") == ()


@pytest.mark.parametrize("name", ODD)
def test_any_name_is_found_and_no_name_changes_the_query(name: str, tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(1, 5, consumer=name, cluster=name), lag_minute_row(1, 6)])
    write_rows(tables, "incidents", [incident_row(1, None, name, consumer=name, cluster=name)])
    [group] = history.groups(WHOLE, cluster=name, group=name)
    assert (group.cluster, group.group, group.lag, group.incidents) == (name, name, 5, 1)
    assert [each.values for each in history.timeseries(name, WHOLE, cluster=name).points] == [(5,)]
    assert [each.incident_id for each in history.incidents(WHOLE, cluster=name, group=name)] == [name]


# Time series


def test_a_step_has_the_last_known_lag_and_a_step_without_data_is_left_out(tables: Path, history: History) -> None:
    write_rows(
        tables,
        "lag_minute",
        [lag_minute_row(1, 5), lag_minute_row(58, 8), lag_minute_row(59, None), lag_minute_row(185, None, "WARN")],
    )
    told = values(history, "lag", "lag_min", "lag_max", "status", "events", "not_ok")
    assert told == [(minute_at(0), 8, 5, 8, 1, 2 + 1, 0), (minute_at(180), None, None, None, 2, 1, 1)]


def test_the_first_step_is_complete_and_the_end_is_excluded(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(at, at) for at in range(-30, 130)])
    found = values(history, "lag_min", "lag_max", span=TimeRange(minute_at(45), minute_at(120)))
    assert found == [(minute_at(0), 0, 59), (minute_at(60), 60, 119)]
    daily = values(history, "lag_min", span=TimeRange(minute_at(1), minute_at(2)), step=timedelta(days=1))
    assert daily == [(minute_at(0), 0)]


def test_steps_can_be_limited_and_listed_newest_first(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(at, at) for at in range(1435, 1445)])
    series = history.timeseries("g", WHOLE, newest_first=True, limit=2)
    assert (series.cluster, series.metrics) == ("c", ("lag",))
    assert series.points == (SeriesPoint(minute_at(1444), (1444,)), SeriesPoint(minute_at(1443), (1443,)))


def test_metrics_of_several_tables_are_one_series(tables: Path, history: History) -> None:
    partition = {"cluster": "c", "consumer": "g", "topic": "t", "coverage": 1.0}
    rates = [
        partition | {"partition": number, "minute": minute_at(at), "produced": 60, "produce_rate": 1.0 + number}
        for number in range(2)
        for at in (0, 1)
    ]
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5), lag_minute_row(120, 6)])
    write_rows(tables, "rates_minute", rates)
    assert values(history, "lag", "produced", "produce_rate") == [
        (minute_at(0), 5, 240, 3.0),
        (minute_at(120), 6, None, None),
    ]
    one = history.timeseries("g", WHOLE, metrics=["produced"], granularity=HOUR, parts={"topic": "t", "partition": 1})
    assert one.points == (SeriesPoint(minute_at(0), (120,)),)
    assert history.timeseries("g", WHOLE, metrics=["gini"]).points == ()


def test_a_sum_over_partitions_takes_the_newest_of_each_and_is_not_known_if_one_is_not(
    tables: Path, history: History
) -> None:
    def row(at: float, partition: int, lag: int | None) -> dict[str, object]:
        place = {"cluster": "c", "consumer": "g", "topic": "t", "partition": partition}
        return place | {"minute": minute_at(at), "lag": lag, "end_offset": 1000 * at}

    rows = [row(0, 0, 5), row(3, 0, 7), row(1, 1, 10), row(60, 0, 1), row(61, 1, None), row(120, 1, 4)]
    write_rows(tables, "partition_lag_minute", rows)
    write_day(tables, "offsets_minute", DAY, [])
    assert values(history, "partition_lag", "end_offset") == [
        (minute_at(0), 17, 4000),
        (minute_at(60), None, 121_000),
        (minute_at(120), 4, 120_000),
    ]


def test_a_metric_must_exist_for_the_requested_part_of_a_group(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    with pytest.raises(ValueError, match=r"there is no metric 'lags'\. The metrics are lag, lag_min, "):
        history.timeseries("g", WHOLE, metrics=["lags"])
    with pytest.raises(ValueError, match="lag is a metric of the whole group: it cannot be limited to a topic"):
        history.timeseries("g", WHOLE, parts={"topic": "t"})


def test_a_group_in_two_clusters_needs_its_cluster(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5), lag_minute_row(0, 6, cluster="other")])
    with pytest.raises(UnclearGroup, match="'g' is in the clusters c, other"):
        history.timeseries("g", WHOLE)
    assert history.timeseries("g", WHOLE, cluster="other").points == (SeriesPoint(minute_at(0), (6,)),)


@pytest.fixture(scope="module")
def long_history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    tables = tmp_path_factory.mktemp("tables")
    write_rows(tables, "lag_minute", [lag_minute_row(at, at, count=at % 3) for at in range(0, 2 * 1440, 7)])
    with History(tables) as opened:
        yield opened


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(step=st.integers(1, 3000), start=st.integers(0, 2879), length=st.integers(1, 2880))
def test_every_minute_of_a_time_range_is_in_one_step(long_history: History, step: int, start: int, length: int) -> None:
    granularity = timedelta(minutes=step)
    span = TimeRange(minute_at(start), minute_at(start + length))
    points = history_points(long_history, span, granularity)
    first = min((each.at for each in points), default=span.start)
    counted = [at for at in range(0, 2 * 1440, 7) if min(first, span.start) <= minute_at(at) < span.end]
    assert sum(int(each.values[0] or 0) for each in points) == sum(at % 3 for at in counted)
    assert all((each.at.timestamp() // 60) % step == 0 for each in points)


def history_points(history: History, span: TimeRange, granularity: timedelta) -> tuple[SeriesPoint, ...]:
    return history.timeseries("g", span, metrics=["events"], granularity=granularity).points


# Incidents


def test_incidents_are_listed_if_they_overlap_the_time_range(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    rows = [
        incident_row(-3000, None, "open since long", peak_lag=99),
        incident_row(-60, 1, "over midnight"),
        incident_row(-60, -1, "before"),
        incident_row(30, 40, None, topics=None),
        incident_row(200, 300, "after"),
    ]
    write_rows(tables, "incidents", rows)
    span = TimeRange(minute_at(0), minute_at(120))
    found = history.incidents(span)
    assert [each.incident_id for each in found] == [None, "over midnight", "open since long"]
    assert found[0] == Incident(None, "c", "g", minute_at(30), minute_at(40), "close", "ERR", 10, 2, ())
    assert (found[2].ended_at, found[2].ended_by, found[2].topics) == (None, None, ("t",))
    by_peak = history.incidents(span, order="peak_lag")[:1]
    assert by_peak == history.incidents(span, order="longest")[:1] == found[2:]
    assert history.incidents(span, order="oldest") == found[::-1]
    assert history.incidents(span, group="nobody") == ()


# Which days are held


def test_a_day_is_held_for_incidents_if_it_has_verdicts_and_derive_has_finished_it(
    tables: Path, history: History
) -> None:
    days = [DAY + timedelta(days=number) for number in range(5)]
    write_rows(tables, "lag_minute", [lag_minute_row(1440 * number, 5) for number in (0, 1, 3)])
    write_rows(tables, "verdict_runs", [verdict_run_row(1440 * number, 1440 * number + 7) for number in (1, 2, 3)])
    write_rows(tables, "verdict_runs", [verdict_run_row(1440 * 4 - 1, day=days[4], consumer="late")])
    write_derived_days(tables, [days[0], *days[2:]])
    assert (history.days(), history.days("incidents")) == ((days[0], days[1], days[3]), tuple(days[2:]))
    assert (history.days("incidents", group="g"), history.days(group="late")) == (tuple(days[2:4]), ())
    # The verdict of the last day was observed just before midnight, and received after it.
    assert history.days("incidents", group="late", cluster="c") == (days[4],)
    whole = TimeRange(minute_at(0), minute_at(5 * 1440))
    assert history.held(whole, "incidents", group="g") == Days(
        (DayRange(days[2], days[3]),), (DayRange(days[0], days[1]), DayRange(days[4], days[4]))
    )
    assert history.held(whole, "lag_minute", "incidents") == Days((DayRange(days[0], days[4]),), ())
    assert history.newest_verdict(days[3], group="g") == minute_at(3 * 1440 + 7)
    assert history.newest_verdict(days[3], group="nobody") is history.newest_verdict(days[0]) is None


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("", id="an empty note"),
        pytest.param("{", id="cut after a brace"),
        pytest.param("[]", id="an array"),
        pytest.param("{}", id="an empty object"),
        pytest.param('{"days": {"soon": 1}}', id="a day that is not a date"),
        pytest.param('{"days": 7}', id="days that are a number"),
        pytest.param('"days"', id="a text"),
        pytest.param('{"days": ["2026-11-20"]}', id="a list of days"),
        pytest.param('{"days": {"2026-11-20": null}}', id="a day that is null"),
        pytest.param("[" * 200_000, id="too many levels"),
        pytest.param('{"else": ' + "[" * 200_000, id="too many levels below another key"),
    ],
)
def test_a_note_without_readable_days_counts_as_none_finished(tables: Path, history: History, note: str) -> None:
    write_rows(tables, "verdict_runs", [verdict_run_row(0)])
    (tables / "_derived.json").write_text(note)
    assert history.days("incidents") == ()


def test_a_day_without_a_byte_of_data_is_not_held(tables: Path, history: History) -> None:
    days = [DAY + timedelta(days=number) for number in range(5)]
    for name, row in (("lag_minute", lag_minute_row(0, 5)), ("verdict_runs", verdict_run_row(0))):
        write_rows(tables, name, [row])
        directories = [tables / name / f"day={day}" for day in days[1:]]
        for directory in directories:
            directory.mkdir()
        (directories[1] / f"{name}.parquet").touch()
        (directories[2] / f"{name}.parquet").symlink_to("nowhere.parquet")
        (directories[3] / f".{name}.parquet").write_bytes(b"nothing")
    write_derived_days(tables, days)
    assert history.days() == history.days("incidents") == (DAY,)
    write_day(tables, "verdict_runs", days[1], [])
    assert history.days("incidents") == (DAY,)


@pytest.mark.parametrize(
    "leave",
    [
        lambda _place: None,
        lambda place: place.mkdir(),
        lambda place: place.write_bytes(b"nothing"),
        lambda place: place.symlink_to("nowhere"),
        lambda place: write_day(place.parent, "incidents", DAY, [incident_row(5, 9)]).rename(
            place / "incidents.parquet"
        ),
        lambda place: write_day(place.parent, "incidents", DAY, [incident_row(5, 9)]).rename(
            place / f"day={DAY}" / "incidents.parquet.tmp"
        ),
        lambda place: write_day(place.parent, "incidents", DAY, [incident_row(5, 9, consumer="other")]),
    ],
    ids=["missing", "empty", "file", "dangling", "without days", "unfinished file", "of another group"],
)
def test_a_day_is_not_held_if_the_table_lacks_an_incident_of_its_verdicts(
    tables: Path, history: History, leave: Callable[[Path], object]
) -> None:
    write_rows(
        tables,
        "verdict_runs",
        [verdict_run_row(5, 9, status="ERR", kind="incident"), verdict_run_row(1445), verdict_run_row(6, consumer="h")],
    )
    write_derived_days(tables, [DAY, DAY + timedelta(days=1)])
    leave(tables / "incidents")
    assert history.days("incidents") == history.days("incidents", group="g") == (DAY + timedelta(days=1),)
    assert history.days("incidents", group="h") == (DAY,)


def test_verdicts_belong_to_the_incident_of_their_id_or_to_one_within_a_day(tables: Path, history: History) -> None:
    bad = {"status": "ERR", "kind": "incident"}
    told_late = verdict_run_row(5 * 1440 + 1, incident_id="i", **bad)
    runs = [
        verdict_run_row(1439, **bad),
        verdict_run_row(1440, **bad),
        verdict_run_row(3 * 1440, **bad),
        verdict_run_row(4 * 1440 + 1),
        told_late,
    ]
    write_rows(tables, "verdict_runs", runs)
    write_rows(tables, "incidents", [incident_row(1450, 1460, "i")])
    days = [DAY + timedelta(days=number) for number in range(6)]
    write_derived_days(tables, days)
    assert history.days("incidents") == (days[0], days[1], days[4], days[5])


def test_an_unreadable_note_gives_one_sentence(tables: Path, history_in_folder: History) -> None:
    (tables / "_derived.json").mkdir()
    with pytest.raises(HistoryError, match=r"_derived\.json cannot be read \(Is a directory\): let this user read it"):
        history_in_folder.days("incidents")


def test_the_page_of_a_group_gets_hours_incidents_and_days_without_known_incidents(
    tables: Path, history: History
) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(-1440, 5), lag_minute_row(30, 7, "WARN")])
    write_rows(tables, "verdict_runs", [verdict_run_row(30, status="WARN"), verdict_run_row(-1440, consumer="other")])
    write_rows(tables, "incidents", [incident_row(30, None)])
    write_derived_days(tables, [DAY - timedelta(days=1), DAY])
    told = history.hourly("c", "g", until=minute_at(60), days=2)
    assert told.hours == (SeriesPoint(minute_at(-1440), (5, None, 1)), SeriesPoint(minute_at(0), (7, None, 2)))
    assert [each.started_at for each in told.incidents] == [minute_at(30)]
    assert told.missing == (DayRange(DAY - timedelta(days=2), DAY - timedelta(days=1)),)


# Missing tables, columns and files


def test_missing_tables_are_named(tables: Path, history_in_folder: History) -> None:
    told = []
    for prepare in (
        tables.rmdir,
        tables.mkdir,
        (tables / "lag_minute").mkdir,
        lambda: write_day(tables, "lag_minute", DAY, []).rename(tables / "lag_minute" / "part-0.parquet"),
    ):
        prepare()
        for empty in (tables / "lag_minute").glob("day=*"):
            empty.rmdir()
        with pytest.raises(HistoryError) as raised:
            history_in_folder.groups(WHOLE)
        told.append(str(raised.value).replace(str(tables), "<tables>"))
    assert told == [
        "<tables>: no such directory. Run karrot pipeline ingest and derive to make the tables",
        "<tables> has no table lag_minute: run karrot pipeline derive",
        *2
        * [
            "<tables>/lag_minute has no data in directories day=YYYY-MM-DD: run karrot pipeline derive to make it again"
        ],
    ]


def test_days_without_rows_give_an_empty_answer(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    write_day(tables, "lag_minute", DAY + timedelta(days=1), [])
    later = TimeRange(minute_at(1440), minute_at(9000))
    assert (history.groups(later), history.timeseries("g", later).points, history.incidents(later)) == ((), (), ())
    assert history.days() == (DAY, DAY + timedelta(days=1))


def test_a_table_without_a_column_gives_one_sentence_and_a_day_without_it_gives_null(
    tables: Path, history: History
) -> None:
    write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)], without=["lag_seconds_max"])
    with pytest.raises(HistoryError, match=r'lag_minute cannot be read .*"lag_seconds_max".* derive it again'):
        history.groups(WHOLE)
    write_rows(tables, "lag_minute", [lag_minute_row(1441, 6, lag_seconds_max=1.5)])
    assert values(history, "lag", "lag_seconds") == [(minute_at(0), 5, None), (minute_at(1440), 6, 1.5)]


def test_a_damaged_file_is_named_and_other_files_are_ignored(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    day = tables / "lag_minute" / f"day={DAY}"
    for name in (".lag_minute.parquet.crc", ".part.parquet", "_SUCCESS"):
        (day / name).write_bytes(b"nothing")
    (tables / "lag_minute" / "day=someday").mkdir()
    assert values(history, "lag") == [(minute_at(0), 5)]
    (day / "lag_minute.parquet").write_bytes(b"PAR1" * 9)
    with pytest.raises(HistoryError, match="cannot be read"):
        history.groups(WHOLE)


def test_without_duckdb_the_extra_is_named(history_in_folder: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(HistoryError, match=r"pip install 'karrot-burrow\[history\]'"):
        history_in_folder.groups(WHOLE)


# While derive writes


def test_readers_see_each_day_whole_while_it_is_replaced(tables: Path, history_in_folder: History) -> None:
    days = [DAY + timedelta(days=number) for number in range(3)]
    generations = [[tables / "made" / str(number) / f"{day}.parquet" for day in days] for number in range(2)]
    for number, files in enumerate(generations):
        for day, file in zip(days, files, strict=True):
            first = (day - DAY).days * 1440
            rows = [lag_minute_row(first + at, 1000 + number, worst_status="OK" * (number + 1)) for at in range(1440)]
            file.parent.mkdir(parents=True, exist_ok=True)
            write_day(tables, "lag_minute", day, rows[: 1440 - 700 * number]).rename(file)
    done = threading.Event()

    def replace() -> int:
        turns = 0
        while not done.is_set():
            for day, file in zip(days, generations[turns % 2], strict=True):
                aside = tables / f".{day}"
                aside.write_bytes(file.read_bytes())
                aside.rename(tables / "lag_minute" / f"day={day}" / "lag_minute.parquet")
            turns += 1
            done.wait(0.05)
        return turns

    replace_once = [file.read_bytes() for file in generations[0]]
    for day, content in zip(days, replace_once, strict=True):
        (tables / "lag_minute" / f"day={day}" / "lag_minute.parquet").write_bytes(content)
    whole = {(1000, 1000, 1440), (1001, 1001, 740)}
    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(replace)
        try:
            readers = [pool.submit(ask_often, history_in_folder, 8) for _ in range(2)]
            seen = [each for reader in readers for each in reader.result()]
        finally:
            done.set()
        assert writer.result() > 0
    assert set(seen) <= whole
    assert len(seen) == 2 * 8 * len(days)


def ask_often(history: History, times: int) -> list[tuple[object, ...]]:
    asked = ("lag_min", "lag_max", "events")
    series = [history.timeseries("g", WHOLE, metrics=asked, granularity=timedelta(days=1)) for _ in range(times)]
    return [point.values for each in series for point in each.points]


def test_ctrl_c_during_a_query_raises_keyboard_interrupt(tables: Path) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    duck = Duck(TablesInFolder(tables), threads=1, memory="256MB")
    pressed = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

    def press_soon(_day: date) -> bool:
        if not pressed.is_alive():
            pressed.start()
        return True

    with pytest.raises(KeyboardInterrupt):
        duck.rows("lag_minute", press_soon, "SELECT sum(lag_min + range) FROM {table}, range(1000000000000)", {})
    pressed.join()
    duck.close()


def test_a_table_that_keeps_changing_gives_one_sentence(tables: Path) -> None:
    file = write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)])

    def restless(_day: date) -> bool:
        file.touch()
        return True

    duck = Duck(TablesInFolder(tables), threads=1, memory="256MB")
    with pytest.raises(HistoryError, match="changed 20 times while it was read"):
        duck.rows("lag_minute", restless, "SELECT 1 FROM {table}", {})
    duck.close()


def test_a_query_does_not_wait_for_rows_that_a_stream_adds(tables: Path) -> None:
    batches = iter(range(100))

    def growing(_day: date) -> bool:
        write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)], batch=f"a-{next(batches):06d}")
        return True

    write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)])
    duck = Duck(TablesInFolder(tables), threads=1, memory="256MB")
    assert duck.rows("lag_minute", growing, "SELECT count(*) FROM {table}", {}) == [(2,)]
    duck.close()
