"""A log line has the same form for every logger."""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog

from karrot import logs


@pytest.fixture(autouse=True)
def _others_are_left_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_time_level_logger_and_event_first() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    structlog.get_logger("karrot.intake").warning("event refused", code="invalid_json", bytes=7)
    (line,) = lines(stream)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "karrot.intake",
        "event": "event refused",
        "code": "invalid_json",
        "bytes": 7,
    }


def test_values_of_a_record_of_the_standard_library_are_fields_of_the_line() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    logging.getLogger("karrot.eventlog").warning("refused", extra={"code": "commit_refused", "reason": "x" * 600})
    (line,) = lines(stream)
    assert (line["event"], line["code"]) == ("refused", "commit_refused")
    assert line["reason"] == "x" * 500 + "... (600 characters)"


def test_the_standard_library_s_records_have_the_same_form() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    logging.getLogger("gunicorn.error").info("Listening at: %s", "http://127.0.0.1:5000")
    (line,) = lines(stream)
    assert (line["level"], line["logger"]) == ("info", "gunicorn.error")
    assert line["event"] == "Listening at: http://127.0.0.1:5000"


def test_a_record_below_the_level_is_not_logged() -> None:
    stream = io.StringIO()
    logs.configure("WARNING", stream)
    structlog.get_logger("a").info("quiet")
    logging.getLogger("b").info("quiet")
    assert stream.getvalue() == ""


def test_configuring_again_changes_level_and_stream_and_duplicates_no_line() -> None:
    before, after = io.StringIO(), io.StringIO()
    log = structlog.get_logger("karrot")
    logs.configure("ERROR", before)
    log.info("quiet")
    logs.configure("INFO", after)
    log.info("heard")
    assert before.getvalue() == ""
    assert [line["event"] for line in lines(after)] == ["heard"]


def test_long_values_of_any_type_are_cut() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    structlog.get_logger("a").info(
        "x" * 600, name="n" * 501, body=b"b" * 600, error=ValueError("v" * 600), short="s" * 500
    )
    logging.getLogger("b").info("y" * 600)
    first, second = lines(stream)
    assert first["event"] == "x" * 500 + "... (600 characters)"
    assert first["name"] == "n" * 500 + "... (501 characters)"
    assert first["body"].endswith("... (603 characters)")
    assert first["error"].endswith("... (614 characters)")
    assert first["short"] == "s" * 500
    assert second["event"] == "y" * 500 + "... (600 characters)"


@pytest.mark.parametrize("name", ["line\nbreak", '"}\n{"level":"critical"', "\x1b[2J", "\ud800", "\0", "käse"])
def test_no_name_can_break_a_line(name: str) -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    structlog.get_logger("a").info("seen", consumer=name)
    (line,) = lines(stream)
    assert line["consumer"] == name


def test_an_exception_is_one_field_of_one_line() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        structlog.get_logger("a").exception("failed")
        logging.getLogger("b").exception("failed")
    ours, theirs = lines(stream)
    assert ours["exception"] == theirs["exception"]
    assert re.search(r"ZeroDivisionError: .*\bby zero$", ours["exception"])  # Python 3.14 has another text


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_user_who_wants_no_colours_gets_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    stream = Terminal()
    logs.configure("INFO", stream)
    structlog.get_logger("a").info("event stored", consumer="orders")
    assert "event stored" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


def test_a_terminal_gets_readable_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    logs.configure("INFO", stream)
    structlog.get_logger("a").info("event stored", consumer="orders")
    assert "event stored" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_no_name_can_control_a_terminal() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream, console=True)
    structlog.get_logger("a").info("seen", consumer="\x1b[2J\nkarrot is fine")
    logging.getLogger("b").info("seen \x1b]0;title\x07")
    assert "\x1b" not in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 2


def lost(stream: TextIO, *values: object) -> str:
    """Log one record to this stream alone, and return what logging prints to standard error about it."""
    logging.getLogger().handlers.clear()
    logs.configure("INFO", stream)
    with redirect_stderr(io.StringIO()) as printed:
        logging.getLogger("karrot.test").warning("%d", *values)
    return printed.getvalue()


def test_a_full_disk_loses_lines_without_a_traceback_for_each() -> None:
    with Path("/dev/full").open("w") as full:  # closing flushes what is left, and must not fail
        printed = lost(full, 7)
    assert printed == ""


def test_a_record_with_wrong_arguments_prints_its_traceback() -> None:
    assert "--- Logging error ---" in lost(io.StringIO(), "not a number")
