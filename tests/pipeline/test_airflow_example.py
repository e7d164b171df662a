"""The DAG of examples/airflow runs a command that Karrot has. If there is an Airflow, Airflow runs the DAG."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from karrot.cli import main
from support.pipeline.archive_segments import segment_line, write_segment

DAG = Path(__file__).resolve().parents[2] / "examples" / "airflow" / "karrot_pipeline.py"
AIRFLOW = os.environ.get("AIRFLOW_BIN") or shutil.which("airflow")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the archive and the tables that the variables of the DAG name."""
    write_segment(tmp_path / "archive", 1, [segment_line(1), segment_line(2)])
    monkeypatch.setenv("KARROT_ARCHIVE_DIR", str(tmp_path / "archive"))
    monkeypatch.setenv("KARROT_TABLES_DIR", str(tmp_path / "tables"))
    return tmp_path


def _turn() -> Result:
    """Run the first step of the command of the DAG, which is found without Airflow: the other steps take long."""
    parsed = ast.parse(DAG.read_text(encoding="utf-8"))
    plain: list[ast.stmt] = [node for node in parsed.body if isinstance(node, ast.Import | ast.Assign)]
    names: dict[str, list[str]] = {}
    exec(compile(ast.Module(plain, []), DAG, "exec"), names)
    return CliRunner().invoke(main, [*names["TURN"], "--only=events"])


@pytest.mark.usefixtures("spark")
def test_a_turn_of_the_dag_reads_what_is_new_and_may_be_repeated(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda _self: None)
    first, again = _turn(), _turn()
    assert (first.exit_code, again.exit_code) == (0, 0), first.output + again.output
    assert first.stdout == "2 lines of 1 segments = 2 events + 0 quarantined + 0 duplicates; 2 partitions\n"
    assert again.stdout == "0 lines = 0 events + 0 quarantined + 0 duplicates; 0 partitions\n"
    shutil.rmtree(places / "archive")
    assert _turn().exit_code == 2


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.skipif(AIRFLOW is None, reason="needs Airflow 3, on the PATH or in AIRFLOW_BIN")
def test_airflow_runs_the_dag_and_sees_that_a_turn_failed(places: Path) -> None:
    karrot = places / "karrot"
    karrot.write_text(f'#!/bin/sh\nexec {sys.executable} -m karrot "$@"\n', encoding="utf-8")
    karrot.chmod(0o755)
    environ = os.environ | {
        "AIRFLOW_HOME": str(places / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAG.parent),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "KARROT_COMMAND": str(karrot),
        "PYTHONPATH": str(DAG.parents[2]),
    }

    def airflow(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(AIRFLOW), *arguments], env=environ, capture_output=True, text=True, check=False)

    assert airflow("db", "migrate").returncode == 0
    good = airflow("dags", "test", "karrot_pipeline", "2026-11-29")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "2 lines of 1 segments = 2 events" in good.stdout + good.stderr
    shutil.rmtree(places / "archive")
    bad = airflow("dags", "test", "karrot_pipeline", "2026-11-29")
    assert bad.returncode != 0
    assert "exit code 2" in bad.stdout + bad.stderr
