"""A power cut loses no committed rows of the tables and doubles none, and the next run needs no help.

``TESTS_POWER_CUTS=300`` makes 300 cuts instead of a few.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from karrot.pipeline.store.table_files import Tables, UnreadableTable
from support.powercut import table_commits
from support.powercut.recording import Recording
from support.powercut.replay import check, cuts

CUTS = int(os.environ.get("TESTS_POWER_CUTS", "0"))
COMMITS = 12
"""Delta writes a checkpoint of its log with commit 9."""

BATCHES = 4
Commits = tuple[Recording, dict[int, int]]
"""A recording, and its size when each commit had ended."""


def _output(recording: Recording, program: str, *arguments: object) -> Iterator[str]:
    """Record a program, and yield the lines that it prints."""
    command = [sys.executable, "-m", f"support.powercut.{program}", *map(str, arguments)]
    environment = os.environ | recording.begin() | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    assert process.returncode == 0
    check(recording)


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> Commits:
    recording = Recording.of(tmp_path_factory.mktemp("commits"))
    lines = _output(recording, "table_commits", recording.folder / "tables", COMMITS)
    return recording, {int(line): recording.position() for line in lines}


def _wrong(commits: Commits, place: Path, many: int, *, flushes: bool) -> Iterator[str]:
    """Cut while commits are made, then commit again. Yield what is wrong."""
    recording, ended = commits
    for cut in cuts(recording, Random(many), many, place, flushes=flushes):
        tables = Tables(f"file:{place}/tables")
        many_ended = sum(at <= cut.at for at in ended.values())
        # Later commits can be on the disk too: a number is read some time after it was printed.
        possible = [table_commits.rows_after(number) for number in range(many_ended, COMMITS + 1)]
        try:
            before = table_commits.stored(tables)
            table_commits.commit(tables, COMMITS + 1)
            if before not in possible or table_commits.stored(tables) != before | {COMMITS + 1}:
                yield f"{cut}: {before}, but not one of {possible}"
        except (UnreadableTable, OSError) as error:
            yield f"{cut}: {error}"


def test_a_power_cut_loses_no_commit_of_a_table(commits: Commits, tmp_path: Path) -> None:
    assert [*_wrong(commits, tmp_path / "cut", CUTS or 30, flushes=True)] == []


def test_a_commit_that_is_not_flushed_is_found(commits: Commits, tmp_path: Path) -> None:
    """Otherwise, the test above could not fail."""
    assert [*_wrong(commits, tmp_path / "cut", 10, flushes=False)] != []


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_power_cut_loses_no_record_of_the_kafka_job(tmp_path: Path) -> None:
    """The next run repeats the unfinished batch, whatever is left of Spark's checkpoint, and continues."""
    many = CUTS or 16
    lines = [line.split("\t") for line in _output(Recording.of(tmp_path), "offsets_job", tmp_path, BATCHES, many)]
    assert [line for line in lines if line[0] == "flushes" and line[1] != "right"] == []
    assert len(lines) > many
    assert [line for line in lines if line[0] == "no flushes" and line[1] != "right"] != [], "the test could not fail"
