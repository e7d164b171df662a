"""The ``stdout`` reporter: prints one line of JSON per event.

```
{"event_id":"9f…-1","received_at_ms":1795272998676,"cluster":"prod","consumer":"orders","status":"WARN", …}
```
"""

import sys
from collections.abc import Sequence
from typing import IO, Any

import msgspec

from karrot.eventlog.base import StoredEvent
from karrot.reporters.base import Context


class StdoutReporter:
    """A push reporter: see `karrot.reporters.base.PushReporter`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def report(self, events: Sequence[StoredEvent]) -> None:
        self._stream.write(b"".join(msgspec.json.encode(_record(event)) + b"\n" for event in events))
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the stream belongs to the process."""


def build(_context: Context) -> StdoutReporter:
    return StdoutReporter(sys.stdout.buffer)


def _record(stored: StoredEvent) -> dict[str, Any]:
    event = stored.event
    return {
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
