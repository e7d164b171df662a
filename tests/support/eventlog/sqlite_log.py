"""Opens SQLite event logs like a worker of the service."""

import os
import signal
from pathlib import Path
from typing import Any

from karrot.clock import Clock
from karrot.eventlog.sqlite import SqliteEventLog, data_directory
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock

MAX_BYTES = 64 << 20


def open_sqlite(directory: Path, clock: Clock, *, prepare: bool = True, **options: Any) -> SqliteEventLog:
    """Open a log like a worker, after the steps of its parent."""
    options = {"max_bytes": MAX_BYTES} | options
    if prepare:
        data_directory.prepare(directory, clock, max_bytes=options["max_bytes"])
    return SqliteEventLog(directory, clock, **options)


def append_and_kill_self(directory: Path) -> None:
    """Commit the events of two groups, ``a`` and ``b``, and kill this process with the log open.

    The function is here because a spawned process cannot import a test module.
    """
    log = open_sqlite(directory, ManualClock())
    append_event(log, consumer="a")
    append_event(log, consumer="b")
    os.kill(os.getpid(), signal.SIGKILL)
