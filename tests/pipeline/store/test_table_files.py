import datetime as dt
import os
from pathlib import Path

import duckdb
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from karrot.cli.pipeline.job_errors import why_it_failed
from karrot.pipeline.schemas_and_conversions import COMMITS, QUARANTINE, STATUS_INTERVALS, with_day
from karrot.pipeline.store import hadoop_filesystem
from karrot.pipeline.store.compact_and_expire import compact
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import frame_of_rows

_DAY = dt.date(2026, 11, 20)
_NEXT = dt.date(2026, 11, 21)


def _replace(tables: Tables, spark: SparkSession, day: dt.date, *consumers: str) -> None:
    rows = [{"cluster": "c1", "consumer": consumer, "day": day} for consumer in consumers]
    tables.replace_days(frame_of_rows(spark, with_day(STATUS_INTERVALS), rows), "status_intervals", [day])


def test_a_derived_day_is_one_sorted_file_that_replaces_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "b")
    _replace(tables, spark, _DAY, "z", "a", "m")

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "status_intervals" / "day=2026-11-20" / "status_intervals.parquet"]
    found = duckdb.connect().execute(
        f"SELECT consumer, day::VARCHAR FROM read_parquet('{files[0]}', hive_partitioning=true)"
    )
    assert found.fetchall() == [("a", "2026-11-20"), ("m", "2026-11-20"), ("z", "2026-11-20")]
    assert [row.consumer for row in tables.read(spark, "status_intervals").collect()] == ["a", "m", "z"]


def test_an_empty_day_is_removed_and_other_days_stay(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(tmp_path.as_uri())  # through Hadoop's file system, as for s3a://
    for day in (_DAY, _NEXT):
        _replace(tables, spark, day, "a")
    _replace(tables, spark, _DAY)

    assert tables.days(spark, "status_intervals") == [_NEXT]
    assert tables.read(spark, "status_intervals").count() == 1
    assert tables.read(spark, "incidents").count() == 0


def test_a_batch_is_on_the_disk_when_it_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = set[Path]()
    monkeypatch.setattr(hadoop_filesystem, "flush", flushed.add)
    rows = [{"source": "s", "position": position, "day": _DAY} for position in (1, 2)]
    Tables(str(tmp_path)).write_batch(frame_of_rows(spark, with_day(QUARANTINE), rows), "quarantine", "run-000001")
    written = list((tmp_path / "quarantine").rglob("*.parquet"))
    assert {*written, written[0].parent, written[0].parents[1], written[0].parents[2]} <= flushed


def test_a_path_of_the_clusters_file_system_is_looked_up_there(spark: SparkSession, tmp_path: Path) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.defaultFS", "viewfs://cluster/")
    hadoop.set("fs.viewfs.mounttable.cluster.link./lag", tmp_path.as_uri())
    try:
        tables = Tables("/lag/tables")
        _replace(tables, spark, _DAY, "a", "b")
        assert tables.days(spark, "status_intervals") == [_DAY]
        assert [row.consumer for row in tables.read(spark, "status_intervals").collect()] == ["a", "b"]
    finally:
        hadoop.unset("fs.defaultFS")
        hadoop.unset("fs.viewfs.mounttable.cluster.link./lag")


def test_a_clusters_limit_of_rows_per_file_does_not_split_a_day(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
    try:
        _replace(Tables(str(tmp_path)), spark, _DAY, "a", "b", "c")
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert Tables(str(tmp_path)).read(spark, "status_intervals").count() == 3


def test_what_killed_runs_left_is_swept(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    staged = tmp_path / ".staging" / "status_intervals-0a" / "day=2026-11-20" / "part-0.parquet"
    batch = tmp_path / "events" / ".spark-staging-0b" / "part-0.parquet"
    others = [
        tmp_path / "events" / "day=2026-11-20" / "batch_id=a-0" / "part-0.parquet",
        tmp_path / "partitions" / ".spark-staging-0d" / "part-0.parquet",
    ]
    for file in [staged, batch, *others]:
        file.parent.mkdir(parents=True)
        file.touch()
    tables.sweep_staging(spark)
    assert not staged.exists()
    assert batch.exists()
    tables.sweep_batches(spark, ["events", "quarantine"])
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == others


def test_a_query_that_began_before_compact_fails_and_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    for offset, batch in enumerate(("one", "two")):
        row = {"cluster": "c1", "consumer": batch, "log_partition": 0, "log_offset": offset, "day": _DAY}
        tables.write_batch(frame_of_rows(spark, with_day(COMMITS), [row]), "commits", batch)
    query = tables.read(spark, "commits").select("consumer")
    compact(spark, tables, keep=dt.timedelta(days=30), today=_NEXT)
    with pytest.raises(Py4JJavaError) as failed:
        query.collect()
    assert why_it_failed(str(failed.value)).endswith("replaced this file while it was read: run the command again.")
    assert {row.consumer for row in tables.read(spark, "commits").collect()} == {"one", "two"}


def test_compact_sweeps_what_killed_batches_left_more_than_a_day_ago(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "commits"
    times = {"old": dt.datetime(2026, 11, 19, 23, 59, tzinfo=dt.UTC), "young": dt.datetime(2026, 11, 20, tzinfo=dt.UTC)}
    for name, written in times.items():
        file = table / f".spark-staging-{name}" / "day=2026-11-19" / "part-0"
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (written.timestamp(), written.timestamp()))
    (table / ".spark-staging-empty").mkdir()  # a batch that begins at this moment
    compact(spark, Tables(str(tmp_path)), keep=dt.timedelta(days=30), today=dt.date(2026, 11, 21))
    assert sorted(path.name for path in table.iterdir()) == [".spark-staging-empty", ".spark-staging-young"]
