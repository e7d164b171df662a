from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from karrot.history.answers_and_errors import Incident, SeriesPoint
from karrot.history.days_with_data import Note, note_of
from karrot.history.duckdb_reader import STREAMED
from karrot.history.table_files_in_folder import TablesInFolder
from karrot.history.table_queries import History
from karrot.history.time_ranges import TimeRange
from karrot.pipeline.schemas_and_conversions import DERIVED, INCIDENTS, LAG_MINUTE, PIECES, TABLES, with_day
from karrot.pipeline.store.table_files import Tables, read_note, write_note
from support.pipeline.event_rows import frame_of_rows
from support.pipeline.row_times import MIDNIGHT, minute_at
from support.pipeline.table_files import incident_row, lag_minute_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_history_reads_the_tables_that_spark_writes(spark: "SparkSession", tmp_path: Path) -> None:
    tables, day = Tables(str(tmp_path)), MIDNIGHT.date()
    lags = [lag_minute_row(at, at * 10, "ERR" if at == 3 else "OK", day=day) for at in range(5)]
    frames = {
        "lag_minute": frame_of_rows(spark, with_day(LAG_MINUTE), [each | {"lag_avg": 1.0} for each in lags]),
        "incidents": frame_of_rows(spark, with_day(INCIDENTS), [incident_row(3, None, topics=["a", "b"], day=day)]),
    }
    for name, frame in frames.items():
        frame = frame.withColumn("piece", F.lit(0)) if name in PIECES else frame  # noqa: PLW2901 (with a column more)
        tables.replace_days(frame, name, [day])
    write_note(spark, tables, Note(versions=tables.newest(spark, frames)))
    span = TimeRange(minute_at(1), minute_at(4))
    with History(tmp_path) as history:
        series = history.timeseries("g", span, metrics=("lag", "status"), granularity=timedelta(minutes=2))
        assert series.points == (SeriesPoint(minute_at(0), (10, 1)), SeriesPoint(minute_at(2), (30, 3)))
        [group] = history.groups(span)
        assert (group.status, group.lag, group.minutes, group.incidents) == ("ERR", 30, 3, 1)
        assert history.incidents(span) == (Incident("i", "c", "g", minute_at(3), None, None, "ERR", 10, 2, ("a", "b")),)


@pytest.mark.parametrize(
    "note",
    [
        pytest.param(b"", id="an empty note"),
        pytest.param(b"\xff", id="not UTF-8"),
        pytest.param(b"[" * 200_000, id="too many levels"),
        pytest.param(b'{"else": ' + b"[" * 200_000, id="too many levels below another key"),
        pytest.param(b'{"days": ["2026-11-20"]}', id="a list of days"),
        pytest.param(b'{"days": {"20261120": null}}', id="a null day in the basic format"),
        pytest.param(b'{"days": {"20261120": {"files": "0f"}}}', id="a day in the basic format"),
        pytest.param(b'{"versions": {"incidents": 9223372036854775807}}', id="a version that is far too large"),
        pytest.param(b'{"days": {"2026-11-20": {"files": "0f"}}, "versions": {}}', id="a sound note"),
    ],
)
def test_derive_and_the_history_agree_on_every_note(spark: "SparkSession", tmp_path: Path, note: bytes) -> None:
    (tmp_path / "_derived.json").write_bytes(note)
    assert note_of(TablesInFolder(tmp_path).note() or b"") == read_note(spark, Tables(str(tmp_path)))


def test_the_history_knows_derived_tables_without_importing_the_schemas() -> None:
    assert TABLES.keys() - STREAMED == DERIVED.keys()
