"""The steps of a turn on real tables."""

from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from karrot.pipeline.derive.job import DeriveRules
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.run.pipeline_steps import Jobs, is_alive
from karrot.pipeline.run.step_loop import RunMetrics
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.store.write_lease import EVENTS, LeaseHeld, writing
from support.manual_clock import ManualClock
from support.pipeline.archive_segments import HOUR_MS, segment_line, write_segment

NIGHT = time(2, 30)


def _jobs(spark: SparkSession, tables: Path, wall: datetime) -> tuple[Jobs, CollectorRegistry, ManualClock]:
    clock, registry = ManualClock(wall=round(wall.timestamp() * 1000)), CollectorRegistry()
    metrics = RunMetrics(started_s=0, interval_s=900)
    registry.register(metrics)
    return Jobs(spark, Tables(str(tables)), clock, metrics), registry, clock


def _at(day: int, hour: int, minute: int) -> datetime:
    return datetime(2025, 5, day, hour, minute, tzinfo=UTC)


def test_the_steps_write_events_derive_and_compact(spark: SparkSession, tmp_path: Path) -> None:
    archive, tables = tmp_path / "archive", tmp_path / "tables"
    jobs, registry, _ = _jobs(spark, tables, _at(12, 3, 0))
    take, stop = partial(jobs.events, partial(EventsFromArchive, str(archive)), ""), Event()
    for first in (1, 4):
        write_segment(archive, first, [segment_line(seq) for seq in range(first, first + 3)])
        done = take(stop)
        assert not stop.is_set(), "the end of a step does not stop the process"
        assert done.rows == {"events": 3, "partitions": 3, "quarantine": 0}
        assert done.text == "3 lines of 1 segments = 3 events + 0 quarantined + 0 duplicates; 3 partitions"
    derived = jobs.derive(DeriveRules(), [], Event())
    assert derived == ("derived 1 day, 2025-05-11 to 2025-05-11", {"days": ["2025-05-11"]}, {})
    assert registry.get_sample_value("karrot_pipeline_newest_event_timestamp_seconds") == HOUR_MS / 1000 + 6
    compacted = jobs.compact(timedelta(days=400), None, Event())
    assert compacted is not None
    assert compacted.text == "merged 4 files into 2, dropped 0 days"
    assert compacted.details == {"files_before": 4, "files_after": 2, "dropped": []}
    assert jobs.derive(DeriveRules(), [], Event()).text == "nothing changed", "compaction changes no row"
    report = jobs.report(tmp_path / "report.html", Event())
    assert report.text == f"{tmp_path}/report.html: {report.details['headline']}"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_an_archive_that_does_not_exist_yet_is_named(spark: SparkSession, tmp_path: Path) -> None:
    jobs, _, _ = _jobs(spark, tmp_path / "tables", _at(12, 3, 0))
    with pytest.raises(FileNotFoundError, match="this directory of the archive does not exist"):
        jobs.events(partial(EventsFromArchive, str(tmp_path / "archive")), "", Event())
    assert jobs.derive(DeriveRules(), [], Event()).text == "nothing changed"


def test_the_tables_are_compacted_once_a_day_after_the_hour(spark: SparkSession, tmp_path: Path) -> None:
    jobs, _, clock = _jobs(spark, tmp_path, _at(12, 14, 0))
    is_due = partial(jobs.compact_is_due, NIGHT)
    assert not is_due(), "the first turn on new tables waits for the night"
    clock.jump(round(timedelta(hours=12).total_seconds() * 1000))  # 02:00
    assert not is_due()
    clock.jump(round(timedelta(minutes=30).total_seconds() * 1000))  # 02:30
    assert is_due()
    assert jobs.compact(timedelta(days=400), NIGHT, Event()) is not None
    assert not is_due()
    assert jobs.compact(timedelta(days=400), NIGHT, Event()) is None
    assert not _jobs(spark, tmp_path, _at(13, 5, 0))[0].compact_is_due(NIGHT), "a restart does not compact again"
    assert _jobs(spark, tmp_path, _at(15, 1, 0))[0].compact_is_due(NIGHT), "a process that was down at night"


def test_a_damaged_note_of_the_compaction_counts_as_long_ago(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_compacted").write_text("soon")
    jobs, _, _ = _jobs(spark, tmp_path, _at(12, 14, 0))
    assert jobs.compact_is_due(NIGHT)
    jobs.compact(timedelta(days=400), NIGHT, Event())
    assert date.fromisoformat((tmp_path / "_compacted").read_text()) == date(2025, 5, 12)


def test_a_restarted_process_knows_the_last_turn_without_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    jobs, _, clock = _jobs(spark, tmp_path, _at(12, 14, 0))
    assert jobs.last_success() is None
    jobs.remember_success(clock.wall_ms() / 1000)
    assert _jobs(spark, tmp_path, _at(12, 18, 0))[0].last_success() == clock.wall_ms() / 1000
    (tmp_path / "_last_success").write_text("soon")
    assert jobs.last_success() is None
    (tmp_path / "_last_success").unlink()
    (tmp_path / "_last_success").mkdir()
    assert jobs.last_success() is None, "a file that cannot be read does not end the process"


def test_a_session_that_runs_is_alive(spark: SparkSession) -> None:
    assert is_alive(spark)


def test_a_step_whose_tables_another_command_writes_fails_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    write_segment(tmp_path / "archive", 1, [segment_line(1)])
    jobs, _, _ = _jobs(spark, tmp_path / "tables", _at(12, 3, 0))
    take = partial(jobs.events, partial(EventsFromArchive, str(tmp_path / "archive")), "")
    with (
        writing(spark, jobs.tables, EVENTS, "karrot pipeline offsets"),
        pytest.raises(LeaseHeld, match=r"karrot pipeline offsets .*is writing these tables"),
    ):
        take(Event())
    assert take(Event()).rows["events"] == 1, "the lease is free again"
