"""The alert job reads tables in the layout of the offsets job."""

import datetime as dt
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from karrot.cli.errors import Refused
from karrot.cli.pipeline.stale import say_if_empty
from karrot.pipeline.stale.alert_job import DeliverySummary, StaleAlerts, Undelivered
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import run_queries
from support.manual_clock import ManualClock
from support.pipeline.row_times import epoch_ms, second_at
from support.pipeline.stale_partition_cases import CASES, STALE_AFTER, Case, Commit, ObservedEnd, commit_rows, end_rows
from support.pipeline.table_files import write_rows

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine


def _deliver(spark: SparkSession, tables: Tables, deliver: Callable[[str], None]) -> DeliverySummary:
    """Run a new process, which knows only the checkpoint, for one batch of all rows."""
    told: list[DeliverySummary] = []
    length, since = dt.timedelta(seconds=STALE_AFTER), second_at(0).date()
    clock = ManualClock(wall=epoch_ms(second_at(3_600)))
    job = StaleAlerts(spark, tables, tables.checkpoint("stale"), length, since, deliver, told.append, clock)
    run_queries([job.start()], stop=threading.Event(), follow=False)
    (only,) = told
    return only


def test_missing_commits_are_reported_and_awaited_except_in_a_single_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, said = Tables(str(tmp_path)), f"{tmp_path} has no commits: run karrot pipeline offsets"
    with pytest.raises(Refused, match=re.escape(said)):
        say_if_empty(spark, tables, once=True)
    say_if_empty(spark, tables, once=False)
    assert capsys.readouterr().err == f"karrot: {said}; waiting for the first\n"
    write_rows(tmp_path, "commits", commit_rows(CASES[:1], until=600), batch="b-0")
    say_if_empty(spark, tables, once=True)


def test_each_alert_fires_once_and_clears_once_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    tables, lines = Tables(str(tmp_path)), list[dict[str, Any]]()
    known = [case._replace(commits=[each for each in case.commits if each.at <= 600]) for case in CASES]
    write_rows(tmp_path, "commits", commit_rows(known, until=600), batch="b-0")
    write_rows(tmp_path, "ends", end_rows(known, until=600), batch="b-0")

    def dies_at_the_third(line: str) -> None:
        if len(lines) == 2:
            raise InterruptedError
        lines.append(json.loads(line))

    with pytest.raises(StreamingQueryException):
        _deliver(spark, tables, dies_at_the_third)
    # The batch is repeated but its lines are not computed again: the waiting lines are delivered, from the first.
    given = list[dict[str, Any]]()
    stale = {case.name: case.stale for case in CASES if case.stale}
    assert _deliver(spark, tables, lambda line: given.append(json.loads(line))) == DeliverySummary(delivered=len(stale))
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

    # One partition moves, and the same files come again with other names: only its line is sent, after the outage.
    moved = [Case("stands while the log moves", [Commit(615, 610)], [ObservedEnd(630, 630)], None)]
    write_rows(tmp_path, "commits", [*commit_rows(moved), *commit_rows(known, until=600)], batch="b-1")
    write_rows(tmp_path, "ends", end_rows(moved), batch="b-1")
    assert _deliver(spark, tables, _refuses) == DeliverySummary(unsent=1, problem="HTTP 503")
    write_rows(tmp_path, "ends", end_rows([moved[0]._replace(log_ends=[ObservedEnd(660, 660)])]), batch="b-2")
    cleared = list[str]()
    assert _deliver(spark, tables, cleared.append) == DeliverySummary(delivered=1)
    assert json.loads(cleared[0]) == whole | {
        "state": "cleared",
        "current_offset": 610,
        "log_end_offset": 630,
        "lag": 20,
        "committed_at": "2026-11-20T00:10:15.000Z",
        "looked_at": "2026-11-20T00:10:30.000Z",
    }


def _refuses(_line: str) -> None:
    raise Undelivered("HTTP 503")
