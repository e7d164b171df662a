import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from karrot.cli import main
from support.pipeline.table_files import lag_minute_row, write_note, write_rows


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_rows(tmp_path / "tables", "lag_minute", [lag_minute_row(3, 7, consumer="\x1b[red", cluster="prod")])
    write_note(tmp_path / "tables")
    return tmp_path / "tables"


def _run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    ended = CliRunner().invoke(main, ["history", "report", *arguments], env=environment or None, catch_exceptions=False)
    return ended.exit_code, ended.stdout, ended.stderr


def test_a_report_is_one_file_and_its_headline_is_printed(tables: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    headline = r"\u{1b}[red of prod was furthest behind, 7 messages on Fri 20 Nov 00:03 UTC."
    asked = ["--tables", str(tables), "--output", str(output)]
    assert _run(*asked) == (0, f"{output}: {headline}\n", "")
    assert output.read_text().startswith("<!doctype html>")
    code, told, _ = _run(*asked, "--from", "2026-11-20", "--to", "2026-11-20", "--json")
    assert (code, json.loads(told)) == (0, {"output": str(output), "headline": headline})


def test_a_report_needs_neither_spark_nor_java(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    asked = ["--tables", str(tables), "--output", str(tmp_path / "page.html")]
    assert _run(*asked, PATH="", JAVA_HOME="") == _run(*asked)


def test_days_that_the_tables_do_not_hold_are_no_answer(tables: Path, tmp_path: Path) -> None:
    days = ["--from", "2026-11-22", "--to", "2026-11-22"]
    code, _, said = _run("--tables", str(tables), *days, "--output", str(tmp_path / "page.html"))
    assert (code, said) == (
        1,
        f"karrot: {tables} has no day from 2026-11-22 to 2026-11-22; it has 2026-11-20 to 2026-11-20\n",
    )
    assert not (tmp_path / "page.html").exists()


def test_a_file_that_cannot_be_written_is_named(tables: Path, tmp_path: Path) -> None:
    output = tmp_path / "no such folder" / "page.html"
    code, _, said = _run("--tables", str(tables), "--output", str(output))
    assert (code, said) == (2, f"karrot: [Errno 2] No such file or directory: '{output}'\n")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--from 2026-11-22 --to 2026-11-16", "--from 2026-11-22 is after --to 2026-11-16"),
        ("--to 0001-01-02", "--to is 0001-01-02: it must be from 1970 to 9998"),
        ("--from 2025-05-11 --to 9998-12-31", "a report has at most 3,660 days"),
        (
            "--tables hdfs:///lag/tables",
            "it must be a path, or s3://bucket/prefix. From another file system, copy the tables to a path\n",
        ),
    ],
)
def test_wrong_days_and_places_are_refused(asked: str, said: str) -> None:
    code, _, told = _run("--tables", "t", *asked.split())
    assert (code, said in told) == (2, True), told
