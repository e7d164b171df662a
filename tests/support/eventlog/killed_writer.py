"""What a process of its own does: it has to be importable there, which a test module is not."""

import os
import signal
from pathlib import Path

from support.eventlog.event_log_contract import append
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock

__all__ = ["append_and_die"]


def append_and_die(directory: Path) -> None:
    """Commit the events of two groups, ``a`` and ``b``, and be killed with the log open."""
    log = open_sqlite(directory, ManualClock())
    append(log, consumer="a")
    append(log, consumer="b")
    os.kill(os.getpid(), signal.SIGKILL)
