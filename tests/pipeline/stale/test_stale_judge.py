"""The judge begins with the tables of the offsets job."""

import datetime as dt
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.stale.stale_judge import DeliverySummary, StaleJudge, Undelivered
from karrot.pipeline.store.table_files import Tables
from support.manual_clock import ManualClock
from support.pipeline.judge_batches import CommitRecord, decoded_batch
from support.pipeline.row_times import epoch_ms, second_at
from support.pipeline.stale_partition_cases import (
    CASES,
    CLUSTER,
    PARTITION,
    STALE_AFTER,
    Case,
    Commit,
    ObservedEnd,
    commit_rows,
    end_rows,
)
from support.pipeline.table_files import write_rows

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine


class _Judged:
    """Batches of a judge. Each batch has a new judge, which knows only the checkpoint and the tables."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.tables = spark, place, Tables(str(place / "tables"))
        self.clock = ManualClock(wall=epoch_ms(second_at(3_600)))

    def take(
        self, number: int, cases: Sequence[Case], deliver: Callable[[str], None], **others: Callable[[str], None]
    ) -> DeliverySummary:
        told, since = list[DeliverySummary](), second_at(0).date()
        length, clock = dt.timedelta(seconds=STALE_AFTER), self.clock
        judge = StaleJudge(
            *(self.spark, CLUSTER, self.tables, str(self.place / "stale"), length, since),
            {"webhook": deliver, **others},
            told.append,
            clock,
        )
        judge.take(decoded_batch(self.spark, self.place, number, *_records(cases)))
        (only,) = told
        return only


def _records(cases: Sequence[Case]) -> tuple[list[CommitRecord], list[tuple[TopicPartition, LogEnd]]]:
    commits = [
        CommitRecord(each["consumer"], each["topic"], PARTITION, each["offset"], each["log_ts_ms"], each["log_offset"])
        for each in commit_rows(cases)
    ]
    rows = end_rows(cases)
    ends = [
        (TopicPartition(each["topic"], PARTITION), LogEnd(each["observed_at_ms"], each["end_offset"])) for each in rows
    ]
    return commits, ends


def test_each_alert_fires_once_and_clears_once_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    judged, lines = _Judged(spark, tmp_path), list[dict[str, Any]]()
    known = [case._replace(commits=[each for each in case.commits if each.at <= 600]) for case in CASES]
    # The tables have what an earlier job wrote, and rows of another cluster.
    other = [row | {"cluster": "other"} for row in commit_rows(known[:2], until=600)]
    write_rows(tmp_path / "tables", "commits", [*commit_rows(known, until=600), *other], batch="b-0")
    write_rows(tmp_path / "tables", "ends", end_rows(known, until=600), batch="b-0")

    def dies_at_the_third(line: str) -> None:
        if len(lines) == 2:
            raise InterruptedError
        lines.append(json.loads(line))

    with pytest.raises(InterruptedError):
        judged.take(0, [], dies_at_the_third)
    # The batch is repeated but its lines are not computed again: the waiting lines are delivered, from the first.
    given = list[dict[str, Any]]()
    stale = {case.name: case.stale for case in CASES if case.stale}
    delivered = judged.take(0, [], lambda line: given.append(json.loads(line)))
    assert delivered == DeliverySummary(delivered=len(stale))
    assert lines == given[:2]
    assert {line["group"]: (line["state"], line["current_offset"], line["log_end_offset"]) for line in given} == {
        name: ("stale", each.offset, each.end) for name, each in stale.items()
    }
    whole = next(line for line in given if line["group"] == "stands while the log moves")
    assert whole == {
        "state": "stale",
        "id": whole["id"],
        "cluster": "prod-eu",
        "group": "stands while the log moves",
        "topic": "stands while the log moves",
        "partition": 3,
        "current_offset": 300,
        "log_end_offset": 600,
        "lag": 300,
        "since": "2026-11-20T00:05:00.000Z",
        "committed_at": "2026-11-20T00:05:00.000Z",
        "looked_at": "2026-11-20T00:10:00.000Z",
    }

    # One partition moves, and the same records come again: only its line is sent, after the outage.
    moved = Case("stands while the log moves", [Commit(615, 610)], [ObservedEnd(630, 630)], None)
    printed, waits = list[str](), DeliverySummary(unsent=1, problem="HTTP 503")
    again = [moved, *(each._replace(log_ends=[]) for each in known)]
    assert judged.take(1, again, _refuses, stdout=printed.append) == waits
    assert len(printed) == 1, "a receiver that fails hides no line from the other one"
    cleared = list[str]()
    later = moved._replace(commits=[], log_ends=[ObservedEnd(660, 660)])
    assert judged.take(2, [later], cleared.append, stdout=printed.append) == DeliverySummary(delivered=1)
    assert printed == cleared
    assert json.loads(cleared[0]) == whole | {
        "state": "cleared",
        "current_offset": 610,
        "log_end_offset": 630,
        "lag": 20,
        "committed_at": "2026-11-20T00:10:15.000Z",
        "looked_at": "2026-11-20T00:10:30.000Z",
    }


def test_the_first_batch_has_also_the_commits_from_before_the_first_day_that_it_reads_in_the_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    judged, lines = _Judged(spark, tmp_path), list[str]()
    old = Case("stands for three days", [Commit(-3 * 86_400, 100)], [ObservedEnd(0, 300), ObservedEnd(600, 300)], None)
    write_rows(tmp_path / "tables", "commits", commit_rows([old]), batch="b-0")
    write_rows(tmp_path / "tables", "ends", end_rows([old]), batch="b-0")
    assert judged.take(0, [old], lines.append) == DeliverySummary(delivered=1)
    assert json.loads(lines[0])["since"] == "2026-11-17T00:00:00.000Z"


def test_a_slow_webhook_does_not_hold_back_the_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    judged, lines = _Judged(spark, tmp_path), list[str]()
    stale = [case for case in CASES if case.stale][:5]

    def slowly(line: str) -> None:
        judged.clock.advance(11_000)
        lines.append(line)

    write_rows(tmp_path / "tables", "commits", commit_rows(stale, until=600), batch="b-0")
    write_rows(tmp_path / "tables", "ends", end_rows(stale, until=600), batch="b-0")
    assert judged.take(0, [], slowly) == DeliverySummary(delivered=3, unsent=2, problem="it took more than 30 s")
    assert judged.take(0, [], slowly) == DeliverySummary(delivered=2)
    assert len({json.loads(line)["id"] for line in lines}) == len(lines) == 5


def _refuses(_line: str) -> None:
    raise Undelivered("HTTP 503")
