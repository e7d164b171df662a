"""The comparison at the end of a time of faults finds each kind of loss."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.service.found_events import Found, FoundEvents, printed_events

A, B, UNCONFIRMED = Found("log-1", "a"), Found("log-2", "b"), Found("log-3", "unconfirmed")
RIGHT = FoundEvents(["a", "b"], [A, B, UNCONFIRMED], [A, B, B, UNCONFIRMED], [B, A, UNCONFIRMED])


def test_events_that_are_everywhere_break_no_promise() -> None:
    assert list(RIGHT.broken_promises()) == []


@pytest.mark.parametrize(
    ("found", "promises"),
    [
        (replace(RIGHT, acknowledged=["a", "b", "c"]), ["acknowledged, but not in the log: 1, such as c"]),
        (replace(RIGHT, reported=[A, UNCONFIRMED]), [f"in the log, but never reported: 1, such as {B}"]),
        (replace(RIGHT, archived=[A, UNCONFIRMED]), [f"in the log, but not in the archive: 1, such as {B}"]),
        (replace(RIGHT, archived=[*RIGHT.archived, A]), ["twice in the archive: 1, such as a"]),
        (
            replace(RIGHT, archived=[*RIGHT.archived, Found("other-1", "a")]),
            ["twice in the archive: 1, such as a"],
        ),
        (
            replace(RIGHT, log=[*RIGHT.log, lost := Found("log-4", "a")]),
            [
                f"in the log, but never reported: 1, such as {lost}",
                f"in the log, but not in the archive: 1, such as {lost}",
                "twice in the log: 1, such as a",
            ],
        ),
        (
            replace(RIGHT, reported=[*RIGHT.reported, Found("log-2", "lost")]),
            ["one id for several events: 1, such as log-2"],
        ),
    ],
)
def test_each_loss_and_each_repetition_is_found(found: FoundEvents, promises: list[str]) -> None:
    assert list(found.broken_promises()) == promises


def test_only_complete_lines_count_as_printed(tmp_path: Path) -> None:
    said = tmp_path / "said"
    said.write_text(
        '{"event_id":"log-1","consumer":"a"}\n'
        '{"event":"this worker leads"}\n'
        '{"event_id":"log-2","cons{"event_id":"log-3","consumer":"c"}\n'
        '{"event_id":"log-4","consu'
    )
    assert list(printed_events(said)) == [Found("log-1", "a"), Found("log-3", "c")]
