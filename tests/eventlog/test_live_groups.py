"""The live groups, which pages and scrapes share: `karrot.eventlog.next_group_state.LiveGroups`."""

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
    for number in range(500):
        append_event(log, consumer=f"group-{number}")
    monkeypatch.setattr(time, "sleep", pause)
    assert len(log.live()) == 500
