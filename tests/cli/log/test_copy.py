import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from karrot.cli.log import copy as copy_command
from karrot.clock import SystemClock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.rows import Row
from karrot.eventlog.sqlite import row_copy
from karrot.eventlog.sqlite.row_copy import SqliteCopyTarget
from support.eventlog.appended_events import append_event
from support.eventlog.log_copies import everything, limits, serving
from support.karrot_command import run_karrot


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copy, "_LOCK_WAIT_S", 0.1)


@pytest.fixture
def log_id(tmp_path: Path) -> str:
    """The id of a log with three events of two groups in the folder ``old``."""
    with serving(limits(data_dir=tmp_path / "old"), SystemClock()) as log:
        for consumer in ("a", "b", "a"):
            append_event(log, consumer=consumer)
        return log.log_id


def command(tmp_path: Path, *more: str) -> list[str]:
    return ["log", "copy", "--from", f"sqlite:{tmp_path}/old", "--to", f"sqlite:{tmp_path}/new", *more]


def test_a_finished_copy_says_what_to_start(tmp_path: Path, log_id: str) -> None:
    result = run_karrot(*command(tmp_path))
    assert (result.exit_code, result.stderr) == (0, "")
    first, second = result.stdout.splitlines()
    assert first.startswith("3 events copied, ")
    assert first.endswith(" /s; the newest is 3")
    assert second == (
        f"the copy of log {log_id} is finished, with 2 groups: start Karrot on sqlite:{tmp_path}/new, and not on "
        f"sqlite:{tmp_path}/old again"
    )
    with serving(limits(data_dir=tmp_path / "new"), SystemClock()) as log:
        assert everything(log)["size"] == (3, 2, 1, 3)
    again = run_karrot(*command(tmp_path))
    assert (again.exit_code, again.stdout) == (
        0, f"sqlite:{tmp_path}/new already has the whole log, up to event 3: nothing was copied\n"
    )  # fmt: skip


def test_a_copy_in_advance_says_how_to_finish_it(tmp_path: Path, log_id: str) -> None:
    with serving(limits(data_dir=tmp_path / "old"), SystemClock()) as log:
        advance = run_karrot(*command(tmp_path, "--in-advance"))
        refused = run_karrot(*command(tmp_path))
        append_event(log)
    assert advance.exit_code == 0
    assert advance.stdout.splitlines()[1] == (
        "to finish the copy, stop Karrot and run the command again without --in-advance"
    )
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"karrot: the data directory {tmp_path}/old is in use by a running Karrot: stop it, or copy its events while "
        "it runs with --in-advance\n"
    )
    finished = run_karrot(*command(tmp_path, "--json"))
    told = json.loads(finished.stdout)
    assert told.pop("seconds") >= 0
    assert told == {
        "log_id": log_id,
        "finished": True,
        "copied_events": 1,
        "first_seq": 1,
        "last_seq": 4,
        "groups": 3,
        "damaged": {},
        "left_out": {},
        "left_out_groups": [],
    }


def test_a_group_that_is_left_out_is_named(tmp_path: Path, log_id: str) -> None:
    name = "\x1b" + "x" * 3_000
    with serving(limits(data_dir=tmp_path / "old"), SystemClock()) as log:
        append_event(log, consumer=name)
    result = run_karrot(*command(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:3] == [
        (
            "left out: 1 row of groups, because not every database can hold them: they are damaged, or their name is "
            "too long"
        ),
        rf"left out: the group \u{{1b}}{'x' * 255}… in prod-eu",
    ]
    assert f"the copy of log {log_id} is finished, with 2 groups" in result.stdout


def test_the_progress_goes_to_standard_error(tmp_path: Path, log_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert log_id
    monkeypatch.setattr(copy_command, "_TELL_EVERY_S", 0.0)
    result = run_karrot(*command(tmp_path, "--json"))
    assert json.loads(result.stdout)["finished"]
    assert result.stderr.startswith("karrot: 3 of 3 events copied, ")


def test_a_copy_that_fails_ends_with_code_1_and_can_be_continued(
    tmp_path: Path, log_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_target: SqliteCopyTarget, _events: Sequence[Row]) -> None:
        raise LogUnavailableError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(SqliteCopyTarget, "add", fail)
        result = run_karrot(*command(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "karrot: the copy is unfinished: the disk is full. The same command continues it\n"
    assert log_id in run_karrot(*command(tmp_path)).stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--to", "sqlite:{0}/old"), "--from and --to are the same event log: sqlite:{0}/old"),
        (("--to", "{0}/new"), "--to is '{0}/new': it must be sqlite:DIRECTORY, or postgresql://USER@HOST/DATABASE"),
        (("--to", "sqlite:"), "--to is 'sqlite:': it must be sqlite:DIRECTORY, or postgresql://USER@HOST/DATABASE"),
        (("--to", "memory"), "--to is 'memory': it must be sqlite:DIRECTORY"),
        (("--to", "postgresql://me:secret@host/db"), "--to is 'postgresql://***@host/db': it must be sqlite:DIRECTORY"),
        (("--to", "postgresql://host/db?port=x"), "karrot: cannot connect to PostgreSQL: "),
        (("--from", "sqlite:{0}/none"), "there is no event log in {0}/none: it has no file events.db"),
        (("--to-password-file", "/etc/hosts"), "--to-password-file needs --to postgresql://..."),
    ],
    ids=["the same", "a path", "no directory", "memory", "a password", "no port", "no log", "no need of a password"],
)
def test_a_wrong_place_is_refused(tmp_path: Path, log_id: str, arguments: tuple[str, ...], sentence: str) -> None:
    assert log_id
    result = run_karrot(*command(tmp_path, *(text.format(tmp_path) for text in arguments)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence.format(tmp_path) in result.stderr
    assert "secret" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "new" / "events.db").exists()


def test_only_the_settings_of_the_event_log_are_read(tmp_path: Path, log_id: str) -> None:
    """The environment is that of one of the two services, and need not fit to the other."""
    others = {"KARROT_REPORTERS": "nosuch", "KARROT_EVENT_LOG": "postgresql://u:secret@h/db", "KARROT_WORKERS": "-1"}
    assert log_id in run_karrot(*command(tmp_path), env=others).stdout
    wrong = {"KARROT_RETENTION": "soon", "KARROT_EVENT_LOG_RDS_IAM": "true", "KARROT_EVENT_LOG_PASSWORD_COMMAND": "pw"}
    result = run_karrot(*command(tmp_path), env=wrong)
    assert result.exit_code == 2
    assert [line.partition(":")[2] for line in result.stderr.splitlines()] == [
        " KARROT_RETENTION is 'soon': it must be seconds, or a number with s, m, h or d, from 1s to 3650d",
        " KARROT_EVENT_LOG_PASSWORD_COMMAND and KARROT_EVENT_LOG_RDS_IAM are set: set only one of them",
    ]


def test_a_directory_of_another_user_is_refused_in_one_line(tmp_path: Path, log_id: str) -> None:
    assert log_id
    (tmp_path / "new").write_text("a file")
    result = run_karrot(*command(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert os.fspath(tmp_path / "new") in result.stderr
