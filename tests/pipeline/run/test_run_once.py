"""``karrot pipeline run --once`` on real tables: what it prints, and its exit code."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from karrot.cli import main
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.store.write_lease import DERIVED, writing
from support.pipeline.archive_segments import segment_line, write_segment


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Keep the session of the tests, which a command would stop."""
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    return spark


def _run(place: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", "run", "--once", f"--tables={place / 'tables'}", *options])


def _errors(ended: Result) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("karrot: ")]


def test_each_step_prints_its_result_as_a_line_of_json(tmp_path: Path) -> None:
    write_segment(tmp_path / "archive", 1, [segment_line(1), segment_line(2)])
    ended = _run(tmp_path, f"--archive={tmp_path / 'archive'}", "--only=events,compact", "--keep=3650d", "--json")
    assert (ended.exit_code, _errors(ended)) == (0, []), ended.output
    events, compact = map(json.loads, ended.stdout.splitlines())
    assert (events["step"], events["lines"], events["events"], events["quarantined"]) == ("events", 2, 2, 0)
    assert compact == {"step": "compact", "files_before": 0, "files_after": 0, "dropped": []}
    assert not (tmp_path / "tables" / "_last_success").exists(), "chosen steps hide no process that fails"


def test_a_failed_step_is_reported_once_and_the_others_do_their_work(spark: SparkSession, tmp_path: Path) -> None:
    archive, tables = tmp_path / "archive", Tables(str(tmp_path / "tables"))
    ended = _run(tmp_path, f"--archive={archive}")
    assert ended.stdout == "nothing changed\n"
    assert _errors(ended) == [f"karrot: {archive}: this directory of the archive does not exist"]
    assert ended.exit_code == 2
    write_segment(archive, 1, [segment_line(1)])
    with writing(spark, tables, DERIVED, "karrot pipeline run"):
        ended = _run(tmp_path, f"--archive={archive}")
    assert ended.stdout == "1 lines of 1 segments = 1 events + 0 quarantined + 0 duplicates; 1 partitions\n"
    assert len(_errors(ended)) == 1
    assert "karrot pipeline run" in ended.stderr
    assert ended.exit_code == 1
