"""The ``stdout`` reporter: prints one line of JSON per event.

```
{"event_id":"9f…-1","received_at_ms":1795272998676,"cluster":"prod","consumer":"orders","status":"WARN", …}
```
"""

import json
import sys
from itertools import islice
from typing import IO

from karrot.reporters.base import Context, Unreported

_AT_ONCE = 500
"""The most events of one report. After a crash during a report, these events are printed again."""


class StdoutReporter:
    """The `karrot.reporters.base.PushReporter` for standard output."""

    every_s = 0.0

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def report(self, events: Unreported) -> None:
        for stored in islice(events, _AT_ONCE):
            event = stored.event
            record = {
                "event_id": stored.event_id,
                "received_at_ms": stored.received_at_ms,
                "source": event.source.value,
                "cluster": event.cluster,
                "consumer": event.consumer,
                "status": event.status_text,
                "kind": event.kind.value,
                "total_lag": event.total_lag,
                "partition_count": event.partition_count,
                "incident_id": event.incident_id,
            }
            # ASCII alone: a name can contain what a terminal obeys, or what changes the order of its characters.
            self._stream.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._stream.flush()

    def close(self) -> None:
        """Do nothing, because the stream belongs to the process."""


def build(_context: Context) -> StdoutReporter:
    return StdoutReporter(sys.stdout.buffer)
