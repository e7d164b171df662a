import datetime as dt
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from karrot.pipeline.schemas import STATUS_INTERVALS
from karrot.pipeline.tables import Tables
from support.histories import table_of

_DAY = dt.date(2026, 11, 20)
_NEXT = dt.date(2026, 11, 21)


def _intervals(spark: SparkSession, *consumers: str) -> DataFrame:
    return table_of(spark, STATUS_INTERVALS, [{"cluster": "c1", "consumer": consumer} for consumer in consumers])


def test_a_derived_day_is_one_sorted_file_that_replaces_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    tables.replace_day(_intervals(spark, "b"), "status_intervals", _DAY)
    tables.replace_day(_intervals(spark, "z", "a", "m"), "status_intervals", _DAY)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "status_intervals" / "day=2026-11-20" / "status_intervals.parquet"]
    found = duckdb.connect().execute(
        f"SELECT consumer, day::VARCHAR FROM read_parquet('{files[0]}', hive_partitioning=true)"
    )
    assert found.fetchall() == [("a", "2026-11-20"), ("m", "2026-11-20"), ("z", "2026-11-20")]
    assert [row.consumer for row in tables.read(spark, "status_intervals").collect()] == ["a", "m", "z"]


def test_a_day_that_became_empty_goes_and_other_days_stay(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(tmp_path.as_uri())  # by Hadoop's file system, as for s3a://
    for day in (_DAY, _NEXT):
        tables.replace_day(_intervals(spark, "a"), "status_intervals", day)
    tables.replace_day(_intervals(spark), "status_intervals", _DAY)

    assert tables.days(spark, "status_intervals") == [_NEXT]
    assert tables.read(spark, "status_intervals").count() == 1
    assert tables.read(spark, "incidents").count() == 0
