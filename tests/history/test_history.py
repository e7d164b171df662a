import json
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karrot.history.answers_and_errors import (
    Days,
    GroupHistory,
    HistoryError,
    Incident,
    SeriesPoint,
    UnclearGroup,
)
from karrot.history.delta_tables import open_table
from karrot.history.duckdb_reader import Duck, Row, TablesAtOneTime
from karrot.history.table_files_in_folder import TablesInFolder
from karrot.history.table_queries import History
from karrot.history.time_ranges import DayRange, TimeRange
from support.pipeline.row_times import DAY, minute_at
from support.pipeline.table_files import (
    incident_row,
    lag_minute_row,
    verdict_run_row,
    write_day,
    write_note,
    write_rows,
)

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
    write_note(tables)
    span = TimeRange(minute_at(0), minute_at(1500))
    assert history.groups(span) == (
        GroupHistory("c", "g", minute_at(1), minute_at(1442), "OK", "ERR", 7, 95, 2.5, 4, 2, 2),
        GroupHistory("c", "gone", minute_at(5), minute_at(5), "NOTFOUND", "NOTFOUND", None, None, None, 1, 0, 0),
    )


def test_the_number_of_incidents_is_known_if_the_tables_are_of_one_run_of_derive(
    tables: Path, history: History
) -> None:
    minutes = [lag_minute_row(0, 5, consumer=name) for name in ("g", "i")]
    write_rows(tables, "lag_minute", [*minutes, lag_minute_row(1, 5, consumer="commits", worst_status=None)])

    def told() -> dict[str, int | None]:
        return {each.group: each.incidents for each in history.groups(WHOLE)}

    assert told() == {"g": None, "i": None, "commits": None}
    write_note(tables)
    assert told() == {"g": 0, "i": 0, "commits": None}
    write_rows(tables, "incidents", [incident_row(0, 1, consumer="i")])
    assert told() == {"g": 0, "i": 0, "commits": None}, "the run has not ended"
    write_note(tables)
    assert told() == {"g": 0, "i": 1, "commits": None}


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
    write_note(tables)
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
    place = {"cluster": "c", "consumer": "g", "topic": "t"}

    def row(at: float, partition: int, lag: int | None) -> dict[str, object]:
        return place | {"partition": partition, "minute": minute_at(at), "lag": lag, "end_offset": 1000 * at}

    rows = [row(0, 0, 5), row(3, 0, 7), row(1, 1, 10), row(60, 0, 1), row(61, 1, None), row(120, 1, 4)]
    write_rows(tables, "partition_lag_minute", rows)
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


def test_a_day_is_held_for_incidents_if_it_has_verdicts_of_the_last_run_of_derive(
    tables: Path, history: History
) -> None:
    days = [DAY + timedelta(days=number) for number in range(5)]
    write_rows(tables, "lag_minute", [lag_minute_row(1440 * number, 5) for number in (0, 1, 3)])
    write_rows(tables, "verdict_runs", [verdict_run_row(1440 * number, 1440 * number + 7) for number in (2, 3)])
    write_rows(tables, "verdict_runs", [verdict_run_row(1440 * 4 - 1, day=days[4], consumer="late")])
    write_note(tables)
    write_rows(tables, "verdict_runs", [verdict_run_row(1440)])  # by a run that has not ended
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
        pytest.param('{"days": {"2026-11-20": {"files": "0f"}}}', id="a note without versions"),
        pytest.param('{"versions": {"verdict_runs": "new"}}', id="a version that is not a number"),
        pytest.param('{"versions": {"verdict_runs": -1}}', id="a version below 0"),
        # deltalake would look for each of these numbers in the log.
        pytest.param('{"versions": {"verdict_runs": 9223372036854775807}}', id="a version that is far too large"),
        pytest.param('{"versions": ["verdict_runs"]}', id="a list of versions"),
        pytest.param("[" * 200_000, id="too many levels"),
        pytest.param('{"else": ' + "[" * 200_000, id="too many levels below another key"),
    ],
)
def test_without_a_note_with_versions_the_newest_tables_are_read_and_incidents_are_unknown(
    tables: Path, history: History, note: str
) -> None:
    write_rows(tables, "verdict_runs", [verdict_run_row(0)])
    (tables / "_derived.json").write_text(note)
    assert history.days("incidents") == ()
    assert history.days("verdict_runs") == (DAY,)


def test_a_table_that_the_note_names_must_exist_at_this_version(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    write_rows(tables, "incidents", [incident_row(0, 1)])
    (tables / "_derived.json").write_text(json.dumps({"versions": {"lag_minute": 1, "incidents": 2}}))
    with pytest.raises(HistoryError, match=r"incidents cannot be read: .*version"):
        history.groups(WHOLE)
    write_note(tables)
    shutil.rmtree(tables / "incidents")
    with pytest.raises(HistoryError, match=r"has no table incidents, but _derived\.json names it: copy the table, or"):
        history.groups(WHOLE)


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
    write_note(tables)
    told = history.hourly("c", "g", until=minute_at(60), days=2)
    assert told.hours == (SeriesPoint(minute_at(-1440), (5, None, 1)), SeriesPoint(minute_at(0), (7, None, 2)))
    assert [each.started_at for each in told.incidents] == [minute_at(30)]
    assert told.missing == (DayRange(DAY - timedelta(days=2), DAY - timedelta(days=1)),)


# Missing and damaged tables, columns and files


def test_missing_tables_are_named(tables: Path, history: History) -> None:
    told = []
    for prepare in (
        lambda: None,
        lambda: write_rows(tables, "verdict_runs", [verdict_run_row(0)]),
        lambda: write_day(tables, "lag_minute", DAY, []),
    ):
        prepare()
        with pytest.raises(HistoryError) as raised:
            history.groups(WHOLE)
        told.append(re.sub(r"^(s3:/.*/karrot|/.* it's)", "<tables>", str(raised.value)))
    assert told[1:] == [
        "<tables> has no table lag_minute: run karrot pipeline run --once --only derive",
        "<tables>/lag_minute has no data: run karrot pipeline run --once --only derive to make it again",
    ]


def test_a_directory_that_does_not_exist_is_named(tables: Path, history_in_folder: History) -> None:
    tables.rmdir()
    with pytest.raises(HistoryError, match="no such directory"):
        history_in_folder.groups(WHOLE)


def test_plain_tables_of_an_older_karrot_are_refused(tables: Path, history: History) -> None:
    old = tables / "lag_minute" / f"day={DAY}" / "lag_minute.parquet"
    old.parent.mkdir(parents=True)
    write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)]).rename(old)
    shutil.rmtree(tables / "lag_minute" / "_delta_log")
    with pytest.raises(
        HistoryError,
        match=r" has tables of Karrot 2\.0\.0a1, which are plain Parquet: name other tables$",
    ):
        history.groups(WHOLE)


def test_days_without_rows_give_an_empty_answer(tables: Path, history: History) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    later = TimeRange(minute_at(1440), minute_at(9000))
    assert (history.groups(later), history.timeseries("g", later).points, history.incidents(later)) == ((), (), ())


def test_a_table_without_a_column_gives_one_sentence_and_a_day_without_it_gives_null(
    tables: Path, history: History
) -> None:
    write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)], without=["lag_seconds_max"])
    said = "/lag_minute has no column lag_seconds_max, because an older Karrot wrote it: run karrot pipeline run --once"
    with pytest.raises(HistoryError, match=f"{said} --only derive$"):
        history.groups(WHOLE)
    write_rows(tables, "lag_minute", [lag_minute_row(1441, 6, lag_seconds_max=1.5)])
    assert values(history, "lag", "lag_seconds") == [(minute_at(0), 5, None), (minute_at(1440), 6, 1.5)]


def test_only_files_of_the_log_are_read(tables: Path, history: History) -> None:
    file = write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)])
    killed = tables / "lag_minute" / "batch_id=killed" / f"day={DAY}" / "part-0.parquet"
    for copy in (killed, file.with_name("copy.parquet"), tables / "lag_minute" / f"day={DAY}" / "old.parquet"):
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    assert values(history, "lag", "events") == [(minute_at(0), 5, 1)]
    write_day(tables, "lag_minute", DAY, [lag_minute_row(1, 6)])
    assert file.exists()
    assert values(history, "lag", "events") == [(minute_at(0), 6, 1)]


def test_a_damaged_file_gives_one_sentence(tables: Path, history: History) -> None:
    file = write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)])
    for content in (b"PAR1" * 9, b""):
        file.write_bytes(content)
        with pytest.raises(HistoryError, match="lag_minute cannot be read"):
            history.groups(WHOLE)


def test_a_deleted_file_gives_one_sentence_and_never_fewer_rows(tables: Path, history: History) -> None:
    write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 5)])
    file = write_day(tables, "lag_minute", DAY + timedelta(days=1), [lag_minute_row(1440, 5)])
    file.unlink()
    with pytest.raises(HistoryError, match=rf"lag_minute/batch_id=.*/{file.name} is missing, but its table's log"):
        history.groups(WHOLE)


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: log.write_text("{nonsense\n"),
        lambda log: log.unlink(),
        lambda log: log.with_name(f"{2:020}.json").write_text(
            '{"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}'
        ),
        lambda log: log.with_name(f"{2:020}.json").write_text(
            '{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], '
            '"writerFeatures": ["deletionVectors"]}}'
        ),
    ],
    ids=["nonsense", "a missing version", "an unknown protocol", "deletion vectors"],
)
def test_a_log_that_cannot_be_read_gives_one_sentence(
    tables: Path, history: History, damage: Callable[[Path], object]
) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    damage(tables / "lag_minute" / "_delta_log" / f"{0:020}.json")
    with pytest.raises(HistoryError, match=r"lag_minute cannot be read: [^\n\x1b]+$"):
        history.groups(WHOLE)


@pytest.mark.parametrize("by", [None, "text", "day"])
def test_another_programs_table_in_the_place_of_a_table_gives_one_sentence(
    tables: Path, history: History, by: str | None
) -> None:
    schema = Schema.from_arrow(pa.schema([("day", pa.string()), ("text", pa.string())]))
    DeltaTable.create(tables / "lag_minute", schema, partition_by=by)
    with pytest.raises(HistoryError, match=r"lag_minute cannot be read: it is not one of Karrot's tables, [^\n]+$"):
        history.groups(WHOLE)


@pytest.mark.parametrize("name", ["a%20b", "100%ab", "back\\slash", "new\nline"])
def test_a_path_that_deltalake_would_change_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a b").mkdir()
    write_rows(tmp_path / "a b", "lag_minute", [lag_minute_row(0, 5)])
    with History(tmp_path / name) as history, pytest.raises(HistoryError, match="which Delta tables cannot have in"):
        history.groups(WHOLE)


@pytest.mark.parametrize("module", ["duckdb", "deltalake"])
def test_without_a_library_the_extra_is_named(
    history_in_folder: History, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(HistoryError, match=rf"needs {module}, .* pip install 'karrot-burrow\[history\]'"):
        history_in_folder.groups(WHOLE)


# While the pipeline writes


def generation(tables: Path, number: int) -> None:
    """Replace three days of two tables. The rows of a generation have the same value, and its number of rows."""
    for day in range(3):
        at = [1440 * day + minute for minute in range(300 + 200 * (number % 2))]
        write_rows(tables, "lag_minute", [lag_minute_row(each, number) for each in at])
        write_rows(tables, "skew_minute", [skew_row(each, number) for each in at])


def skew_row(at: int, value: int) -> dict[str, object]:
    return {"cluster": "c", "consumer": "g", "topic": "t", "minute": minute_at(at), "max_share": float(value)}


def test_an_answer_has_the_tables_of_one_run_while_the_next_runs_write(tables: Path, history: History) -> None:
    generation(tables, 0)
    write_note(tables)
    seen, ended = set[tuple[object, ...]](), threading.Event()

    def write() -> None:
        for number in range(1, 7):
            generation(tables, number)
            write_note(tables)
        ended.set()

    def read() -> None:
        while not ended.is_set():
            asked = ("lag_min", "lag_max", "events", "max_share")
            points = history.timeseries("g", WHOLE, metrics=asked, granularity=timedelta(days=1)).points
            seen.add(tuple(point.values for point in points))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write), pool.submit(read), pool.submit(read)]:
            done.result()
    read_all = {tuple([(number, number, 300 + 200 * (number % 2), number)] * 3) for number in range(7)}
    assert seen <= read_all
    assert len(seen) > 1


def test_rows_of_a_streamed_table_are_never_fewer_or_more_while_they_are_merged(tables: Path, history: History) -> None:
    rows = [partition_row(number) for number in range(40)]
    seen, ended = set[int](), threading.Event()
    write_day(tables, "partitions", DAY, rows)

    def write() -> None:
        for number in range(12):
            write_day(tables, "partitions", DAY, rows[:: 1 - 2 * (number % 2)])
        ended.set()

    def read() -> None:
        while not ended.is_set():
            found = history.describe("g", minute_at(60))
            seen.add(len(found.partitions) if found else 0)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write), pool.submit(read), pool.submit(read)]:
            done.result()
    assert seen == {40}


def test_a_log_entry_that_a_listing_missed_is_found_by_the_next_listing(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ext4 lists a folder in several steps. So a listing can have the entry 2, and lack the older entry 1.
    for number in range(2):
        write_day(tables, "partitions", DAY, [partition_row(0)], batch=f"{number}")
    entry = tables / "partitions/_delta_log/00000000000000000001.json"
    missed = entry.rename(tables / "missed")

    def table_then_entry(*arguments: Any) -> DeltaTable:
        try:
            return DeltaTable(*arguments)
        except DeltaError:
            missed.rename(entry)
            raise

    monkeypatch.setattr(deltalake, "DeltaTable", table_then_entry)
    opened = open_table(str(tables / "partitions"), {})
    assert opened is not None
    assert opened.version() == 2


def partition_row(partition: int) -> dict[str, object]:
    place = {"cluster": "c", "consumer": "g", "topic": "t", "partition": partition, "source": "rest"}
    return place | {"event_id": "e", "observed_at": minute_at(1), "current_lag": 1, "end_offset": 9}


def test_an_answer_whose_files_were_deleted_meanwhile_is_made_again(
    tables: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Karrot deletes a file a day after the run that replaced it."""
    file = write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 1)])
    write_note(tables)
    read = TablesAtOneTime.rows

    def rows(answer: TablesAtOneTime, table: str, *asked: Any) -> list[Row]:
        if file.exists():
            write_day(tables, "lag_minute", DAY, [lag_minute_row(0, 2)])
            write_note(tables)
            file.unlink()
            history._stored.exists()  # also deletes the object in S3
        return read(answer, table, *asked)

    monkeypatch.setattr(TablesAtOneTime, "rows", rows)
    assert values(history, "lag", "events") == [(minute_at(0), 2, 1)]


def test_ctrl_c_during_a_query_raises_keyboard_interrupt(tables: Path) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    duck = Duck(threads=1, memory="256MB")
    pressed = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

    def press_soon(_day: date) -> bool:
        if not pressed.is_alive():
            pressed.start()
        return True

    answer = TablesAtOneTime(TablesInFolder(tables), duck)
    with pytest.raises(KeyboardInterrupt):
        answer.rows("lag_minute", press_soon, "SELECT sum(lag_min + range) FROM {table}, range(1000000000000)", {})
    pressed.join()
    duck.close()
