"""Starts and stops a log as the service does, in a new process for each line of its input, which names a group.

Prints ``accepted`` if the group's event is stored, the groups of the events in the log, and how the process ended.
Events are deleted after a second, so that the log stays small.
"""

import os
import sys
import traceback
from contextlib import closing
from pathlib import Path

from karrot.clock import SystemClock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.sqlite import SqliteEventLog, data_directory
from support.eventlog.appended_events import append_event, stored_events

MAX_BYTES = 8 << 20
REFUSED, WORKER_FAILED, FAILED = "refused", "a worker failed", "failed"
"""The parent process says why it ends, a worker fails and another starts, or the parent process fails."""


def start_and_stop(directory: Path, group: str) -> None:
    clock, how = SystemClock(), FAILED
    try:
        with closing(data_directory.hold(directory, 0)):
            data_directory.prepare(directory, clock, max_bytes=MAX_BYTES)
            how = WORKER_FAILED
            log = SqliteEventLog(directory, clock, max_bytes=MAX_BYTES, retention_ms=1000)
            append_event(log, consumer=group)
            say("accepted")
            say(" ".join(each.event.consumer for each in stored_events(log)))
            log.prune()
            log.close()
        say("stopped")
    except LogUnavailableError:
        say(REFUSED if how == FAILED else how)
    except Exception:  # noqa: BLE001 - the outermost place of the process
        traceback.print_exc()
        say(how)


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    for line in sys.stdin:
        if os.fork() == 0:
            start_and_stop(Path(sys.argv[1]), line.strip())
            os._exit(0)
        os.wait()
        say("ended")
