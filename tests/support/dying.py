"""What a process of its own does: it has to be importable there, which a test module is not."""

import os
import signal
from pathlib import Path

from support.clocks import ManualClock
from support.eventlog_contract import append
from support.sqlite_logs import open_sqlite

__all__ = ["append_and_die"]


def append_and_die(directory: Path) -> None:
    """Commit the events of two groups, ``a`` and ``b``, and be killed with the log open."""
    log = open_sqlite(directory, ManualClock())
    append(log, consumer="a")
    append(log, consumer="b")
    os.kill(os.getpid(), signal.SIGKILL)
