"""Makes the ``textfile`` reporter, which appends one line per event to the file that ``KARROT_TEXTFILE_PATH`` names.

```
9f3c…-17 prod-eu orders-svc ERR 4388
```
"""

import os
from pathlib import Path

from karrot.eventlog.base import StoredEvent
from karrot.reporters.base import Context, Unreported

__all__ = ["TextfileReporter", "build"]


class TextfileReporter:
    """Appends one line per event to a file, as a `karrot.reporters.base.PushReporter`."""

    every_s = 0.0  # report as soon as there are events

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def report(self, events: Unreported) -> None:
        """Append the events. When this returns, they are on disk and Karrot moves the cursor."""
        self._file.writelines(map(_line, events))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def build(context: Context) -> TextfileReporter:
    """Make the reporter. Raises `ValueError` if its only setting is missing."""
    path = context.settings.get("path")
    if not path:
        raise ValueError("KARROT_TEXTFILE_PATH is not set: set it to the file to which the reporter appends lines")
    return TextfileReporter(Path(path))


def _line(stored: StoredEvent) -> str:
    event = stored.event
    lag = "-" if event.total_lag is None else event.total_lag
    return f"{stored.event_id} {event.cluster} {event.consumer} {event.status_text} {lag}\n"
