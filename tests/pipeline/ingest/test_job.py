import base64
import datetime as dt
import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.ingest.job import Ingest, IngestSummary
from karrot.pipeline.store.table_files import Tables
from support.eventlog.rewound_log_contract import append, archive_now, ids
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.pipeline.archive_segments import HOUR_MS, LOG_ID, segment_line, truncate, write_segment
from support.pipeline.expected_tables.all_tables import Rules, tables_of_archive
from support.pipeline.expected_tables.comparison import assert_equal_tables, table_rows
from support.reporters.archive_folder import archive_feed

_TABLES = ("events", "partitions", "quarantine")
_MIB = 1024 * 1024


def _ingest(spark: SparkSession, archive: Path, tables: Path) -> IngestSummary:
    return Ingest(spark, EventsFromArchive(str(archive)), Tables(str(tables))).run()


def _rows(tables: Path) -> dict[str, list[str]]:
    return {name: sorted(map(str, table_rows(tables, name))) for name in _TABLES}


def test_every_event_and_every_foreign_line_is_stored_once_however_often_it_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive, tables = tmp_path / "the archive", tmp_path / "tables"
    lines = [*(segment_line(seq) for seq in range(1, 6)), b"foreign\n", b"[]\n"]
    first = write_segment(archive, 1, lines, promised=9)
    assert _ingest(spark, archive, tables) == IngestSummary(
        batches=1, segments=1, lines=7, events=5, partitions=5, quarantined=2, short_segments=1, missing=2
    )
    before = _rows(tables)
    assert len(before["quarantine"]) == 3

    # The next segment has one event twice, and a copy of the first segment has another name.
    write_segment(archive, 10, [segment_line(5), segment_line(6), segment_line(6)])
    shutil.copy(first, archive / "copy.jsonl.gz")
    again = Ingest(spark, EventsFromArchive(str(archive)), _MergedMeanwhile(str(tables))).run()
    assert again == IngestSummary(batches=1, segments=2, lines=10, events=1, partitions=1, quarantined=2, duplicates=7)
    after = _rows(tables)
    assert len(after["events"]) == 6
    assert set(before["events"]) < set(after["events"])
    assert len(after["quarantine"]) == 5
    assert set(before["quarantine"]) < set(after["quarantine"])

    # A new checkpoint counts its batches from 0 again: nothing is overwritten or stored twice.
    shutil.rmtree(tables / "_checkpoints")
    total = _ingest(spark, archive, tables)
    assert total == IngestSummary(batches=1, segments=3, lines=17, duplicates=17, short_segments=1, missing=2)
    assert total.is_even
    assert _rows(tables) == after


class _MergedMeanwhile(Tables):
    """Tables whose earlier batches are merged while a batch is written."""

    def append(self, df: DataFrame, name: str, batch_id: str, *, job: str = "") -> int:
        rows = super().append(df, name, batch_id, job=job)
        spark = df.sparkSession
        self.merge(
            spark, "events", [file for file in self.files(spark, "events") if file.batch_id != batch_id], "merged"
        )
        return rows


def test_the_job_ends_and_accounts_for_every_line_for_any_files_in_the_archive(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive, tables = tmp_path / "archive", tmp_path / "tables"
    truncate(
        write_segment(archive, 1000, [segment_line(seq, consumer=f"{seq:x}" * 9) for seq in range(1000, 1400)]), 0.5
    )
    huge = json.dumps({"v": 1, "x": "x" * 64 * _MIB}).encode() + b"\n"
    newer = json.dumps({"v": 2, "seq": "another type"}).encode() + b"\n"
    wrong_types = [b'{"v":1,"seq":"x"}\n', b'{"v":1,"lag_seconds":NaN}\n']
    foreign = [b"no JSON at all\n", b"\n", b"[1, 2]\n", *wrong_types, b'{"v":1,"hello":1}\n', b"\xff\xfe\n"]
    strange_times = [segment_line(7, received_at_ms=86_400_000), segment_line(8, received_at_ms=32_503_680_000_000)]
    write_segment(archive, 1, [segment_line(1), *foreign, newer, huge, *strange_times, segment_line(12)])
    (archive / "day=2025-05-11" / "hour=08" / f"{LOG_ID}-50-59-10.jsonl.gz").touch()
    write_segment(archive, 60, [], promised=10)
    write_segment(archive, 70, [segment_line(70)]).write_bytes(b"this is no gzip\n")
    gone = write_segment(archive, 80, [segment_line(80), segment_line(81)])

    class UnderItsFeet(Ingest):
        def take(self, lines: DataFrame, batch: int) -> None:
            gone.unlink()
            super().take(lines, batch)

    job = UnderItsFeet(spark, EventsFromArchive(str(archive)), Tables(str(tables)))
    total = job.run()

    quarantine = Tables(str(tables)).read(spark, "quarantine").orderBy("source", "position").collect()
    short = {Path(row.source).name.split("-")[1]: row.missing for row in quarantine if row.reason == "short_segment"}
    readable = 400 - short["1000"]
    assert 100 < readable < 300
    assert short == {"1000": 400 - readable, "50": 10, "60": 10, "70": 1, "80": 2}
    assert [(row.position, row.reason) for row in quarantine if row.missing is None] == [
        (2, "unreadable"),
        (3, "unreadable"),
        (4, "unreadable"),
        (5, "unreadable"),
        (6, "unreadable"),
        (7, "missing_field"),
        (8, "unreadable"),
        (9, "unknown_version"),
        (10, "too_long"),
        (11, "impossible_time"),
        (12, "impossible_time"),
    ]
    raw = {row.position: base64.b64decode(row.raw, validate=True) for row in quarantine if row.raw is not None}
    assert [raw[position] + b"\n" for position in range(2, 9)] == foreign
    assert raw[10] == huge[: 64 * 1024]
    assert total == IngestSummary(
        batches=1,
        segments=6,
        lines=readable + 13,
        events=readable + 2,
        partitions=readable + 2,
        quarantined=11,
        short_segments=5,
        missing=sum(short.values()),
    )
    assert total.is_even


def test_a_batch_that_was_written_but_not_committed_is_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    archive, tables = tmp_path / "archive", tmp_path / "tables"
    write_segment(archive, 1, [segment_line(1), b"foreign\n", segment_line(3)], promised=4)
    write_segment(archive, 5, [segment_line(3), segment_line(5)])
    copied = write_segment(archive, 7, [segment_line(7), segment_line(8)])
    whole = copied.read_bytes()
    copied.write_bytes(b"")
    long_ago = dt.datetime(2025, 5, 12, tzinfo=dt.UTC).timestamp()
    os.utime(copied, (long_ago, long_ago))

    class DiesBetween(Tables):
        def append(self, df: DataFrame, name: str, batch_id: str, *, job: str = "") -> int:
            if name == "partitions":
                raise InterruptedError("killed between two tables")
            return super().append(df, name, batch_id, job=job)

    class DiesBeforeTheCommit(Ingest):
        def take(self, lines: DataFrame, batch: int) -> None:
            super().take(lines, batch)
            raise InterruptedError("killed before the commit")

    with pytest.raises(StreamingQueryException, match="between two tables"):
        Ingest(spark, EventsFromArchive(str(archive)), DiesBetween(str(tables))).run()
    with pytest.raises(StreamingQueryException, match="before the commit"):
        DiesBeforeTheCommit(spark, EventsFromArchive(str(archive)), Tables(str(tables))).run()
    assert len(_rows(tables)["quarantine"]) == 3
    copied.write_bytes(whole)
    assert _ingest(spark, archive, tables) == IngestSummary(
        batches=1,
        segments=3,
        lines=7,
        events=5,
        partitions=5,
        quarantined=1,
        duplicates=1,
        short_segments=1,
        missing=1,
    )
    expected = tables_of_archive(archive, Rules())
    assert_equal_tables(tables, {name: expected[name] for name in _TABLES})


def test_a_missing_archive_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="this directory of the archive does not exist"):
        _ingest(spark, tmp_path / "archive", tmp_path / "tables")


def test_a_compacted_file_log_of_spark_is_read_too(spark: SparkSession, tmp_path: Path) -> None:
    archive, tables = tmp_path / "archive", Tables(str(tmp_path / "tables"))
    for seq in (1, 2):
        write_segment(archive, seq, [segment_line(seq)])
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "2")
    try:
        total = Ingest(spark, EventsFromArchive(str(archive), batch_bytes=1), tables).run()
    finally:
        spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")
    assert list((tmp_path / "tables").rglob("sources/0/1.compact"))
    assert total == IngestSummary(batches=2, segments=2, lines=2, events=2, partitions=2)


def test_the_job_reads_an_archive_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    archive, tables = tmp_path / "all* [of] {a,b}?", tmp_path / "tables [of] {a,b}"
    write_segment(archive, 1, [segment_line(1), segment_line(2)])
    first = IngestSummary(batches=1, segments=1, lines=2, events=2, partitions=2)
    assert _ingest(spark, archive, tables) == first
    write_segment(archive, 3, [segment_line(3)])
    assert _ingest(spark, archive, tables) == IngestSummary(batches=1, segments=1, lines=1, events=1, partitions=1)
    assert _ingest(spark, archive, tables) == IngestSummary()
    assert len(_rows(tables)["events"]) == 3


def test_the_events_of_both_histories_of_a_restored_log_are_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    archive, tables, data = tmp_path / "archive", tmp_path / "tables", tmp_path / "data"
    data.mkdir()
    clock, told = ManualClock(wall=HOUR_MS), list[str]()
    for names in (("both-1", "both-2"), ("lost-1", "lost-2"), ("new-1", "new-2", "new-3")):
        with closing(open_sqlite(data, clock)) as log:
            append(log, *names)
            archive_now(archive_feed(log, clock, archive))
            told += ids(log)
        _ingest(spark, archive, tables)
        if names[0] == "both-1":
            shutil.copytree(data, tmp_path / "backup")
        if names[0] == "lost-1":
            shutil.rmtree(data)
            (tmp_path / "backup").rename(data)
    stored = Tables(str(tables)).read(spark, "events").select("consumer", "event_id").collect()
    assert sorted(row.consumer for row in stored) == ["both-1", "both-2", "lost-1", "lost-2", "new-1", "new-2", "new-3"]
    assert {row.event_id for row in stored} == set(told)
