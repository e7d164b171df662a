"""What a process of its own does: it has to be importable there, which a test module is not."""

import os
import signal
from pathlib import Path

from support.eventlog.event_log_contract import append_event
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock

__all__ = ["append_and_kill_self"]


def append_and_kill_self(directory: Path) -> None:
    """Commit the events of two groups, ``a`` and ``b``, and be killed with the log open."""
    log = open_sqlite(directory, ManualClock())
    append_event(log, consumer="a")
    append_event(log, consumer="b")
    os.kill(os.getpid(), signal.SIGKILL)
