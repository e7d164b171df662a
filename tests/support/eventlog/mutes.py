"""Makes mutes, and shares them between the logs of several processes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from karrot import mutes
from karrot.event import GroupKey
from karrot.eventlog.event_log import EventLog
from karrot.text import EPOCH
from support.manual_clock import ManualClock


def make_mute(clock: ManualClock, *, seconds: int = 60, **overrides: Any) -> mutes.Mute:
    """A mute of prod-eu's orders-svc from now on."""
    now = EPOCH + timedelta(milliseconds=clock.wall_ms())
    fields = {"id": "0a1b2c3d", "cluster": "prod-eu", "pattern": "orders-svc", "reason": "a planned migration"}
    return mutes.Mute(**{**fields, "since": now, "until": now + timedelta(seconds=seconds), **overrides})


def is_called(name: str, mute: mutes.Mute) -> bool:
    return mute.id == name


def assert_that_processes_share_mutes(open_log: Callable[[], EventLog], clock: ManualClock) -> None:
    """Two processes begin and end mutes at the same time. No change is lost, and a third process finds the others."""
    key, processes = GroupKey("prod-eu", "orders-svc"), [open_log(), open_log()]

    def begin_and_end(number: int) -> int:
        log = processes[number]
        for turn in range(10):
            assert mutes.begin(log, make_mute(clock, id=f"{number}-{turn}"))
        return len([mutes.end(log, partial(is_called, f"0-{turn}")) for turn in range(5)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(begin_and_end, range(2)))
    expected = {f"0-{turn}" for turn in range(5, 10)} | {f"1-{turn}" for turn in range(10)}
    restarted = open_log()
    for log in (*processes, restarted):
        assert {mute.id for mute in mutes.read(log)} == expected
        assert mutes.muted(log, [key], clock.wall_ms()).keys() == {key}
    clock.advance(60_000)
    ended = [mutes.end(log, lambda mute: mute.until_ms <= clock.wall_ms()) for log in (*processes, restarted)]
    assert [len(each) for each in ended] == [15, 0, 0]
