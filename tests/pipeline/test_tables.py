import datetime as dt
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import karrot.tables
from karrot.pipeline.schemas_and_conversions import EVENTS, PARTITIONS, TABLES, with_day
from support.pipeline.event_rows import frame_of_rows
from support.pipeline.table_files import lag_minute_row, write_day, write_note

_DAY = dt.date(2026, 11, 20)


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with a time zone in which a day does not begin at midnight UTC."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def _lags(directory: Path, *lags: int) -> None:
    rows = [lag_minute_row(minute, lag) for minute, lag in enumerate(lags)]
    write_day(directory, "lag_minute", _DAY, rows)


def test_the_open_tables_stay_as_the_last_derive_left_them(spark: SparkSession, tmp_path: Path) -> None:
    _lags(tmp_path, 1)
    write_note(tmp_path)
    _lags(tmp_path, 2, 3)  # of a derive that has not ended
    tables = karrot.tables.open(spark, str(tmp_path))
    assert [row.lag_last for row in tables["lag_minute"].collect()] == [1]
    write_note(tmp_path)
    assert [row.lag_last for row in tables["lag_minute"].collect()] == [1]
    later = karrot.tables.open(spark, tmp_path.as_uri())
    assert sorted(row.lag_last for row in later["lag_minute"].where("lag_max > 1").collect()) == [2, 3]


def test_every_table_can_be_read_and_is_empty_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    _lags(tmp_path, 1)
    tables = karrot.tables.open(spark, tmp_path)
    assert sorted(tables) == sorted(TABLES)
    assert len(tables) == len(TABLES)
    assert {name: tables[name].columns for name in tables} == {
        name: with_day(schema).fieldNames() for name, schema in TABLES.items()
    }
    assert tables["incidents"].count() == 0
    with pytest.raises(KeyError, match="lag_minutes"):
        tables["lag_minutes"]


def test_a_directory_without_tables_is_an_error_and_not_empty_tables(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path} has no tables with rows"):
        karrot.tables.open(spark, str(tmp_path))


def test_a_session_that_is_not_in_utc_is_refused_with_the_cure(berlin: SparkSession, tmp_path: Path) -> None:
    _lags(tmp_path, 1)
    events, partitions = (frame_of_rows(berlin, with_day(schema), []) for schema in (EVENTS, PARTITIONS))
    said = r'is Europe/Berlin, .*: spark\.conf\.set\("spark\.sql\.session\.timeZone", "UTC"\)$'
    for use in (
        lambda: karrot.tables.open(berlin, str(tmp_path)),
        lambda: karrot.tables.lag_minute(events),
        lambda: karrot.tables.verdict_runs(events, partitions, silence=dt.timedelta(minutes=5)),
    ):
        with pytest.raises(karrot.tables.SessionNotUtc, match=said):
            use()


def test_each_transform_has_its_name_its_signature_and_its_docstring() -> None:
    names = [name for name in dir(karrot.tables) if not name.startswith("_")]
    assert {"open", "lag_minute", "verdict_runs", "decode_offsets"} <= {*names}
    for name in names:
        found = getattr(karrot.tables, name)
        assert (found.__name__, bool(inspect.getdoc(found))) == (name, True)
        assert isinstance(found, type) or inspect.signature(found).parameters
    with pytest.raises(AttributeError, match="no attribute 'lag_hour'"):
        karrot.tables.lag_hour  # noqa: B018


def test_help_lists_the_transforms_and_shows_no_environment_variable() -> None:
    program = "import pydoc, karrot.tables; print(pydoc.plain(pydoc.render_doc(karrot.tables)))"
    environ = {**os.environ, "AWS_SECRET_ACCESS_KEY": "secret-of-a-test"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert {"lag_minute(", "slo_daily(", "decode_offsets("} <= {*re.findall(r"^    (\w+\()", done.stdout, re.MULTILINE)}
    assert "secret-of-a-test" not in done.stdout


def test_the_import_needs_no_pyspark() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import karrot.tables; print(len(dir(karrot.tables)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10
