"""The live groups, which pages and scrapes share: `karrot.eventlog.event_log.LiveGroups`."""

import time
from typing import NoReturn

import pytest

from karrot.eventlog.sqlite.store import MemoryEventLog
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock


def test_a_read_of_many_changed_groups_has_no_pause_for_which_a_scrape_would_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pause(_seconds: float) -> NoReturn:
        raise AssertionError("a reader sleeps while other readers wait for it")

    log = MemoryEventLog(ManualClock())
    log.live()
    for number in range(1001):
        append_event(log, consumer=f"group-{number}")
    monkeypatch.setattr(time, "sleep", pause)
    assert len(log.live()) == len(list(log.changed(0))) == 1001


def test_a_damaged_group_on_the_first_page_hides_no_later_page() -> None:
    log = MemoryEventLog(ManualClock())
    for number in range(501):
        append_event(log, consumer=f"group-{number}")
    with log._reading() as connection:
        connection.execute("UPDATE groups SET crc = 0 WHERE consumer = 'group-7'")
    assert len(log.live()) == 500
