"""Writes archive segments in the archive reporter's format, and damages them."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from karrot.burrow.payload import to_wire
from karrot.event import LagEvent
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from support.burrow.lag_events import make_event

LOG_ID = "9f3c1b7a5d2e4f60"
HOUR_MS = 1_746_950_400_000
"""2025-05-11 08:00 UTC, the hour of the segments."""


def segment_line(seq: int, event: LagEvent | None = None, *, received_at_ms: int | None = None, **fields: Any) -> bytes:
    """Return the line of an event that was received ``seq`` seconds into the hour."""
    told = make_event(**fields) if event is None else event
    received = HOUR_MS + 1000 * seq if received_at_ms is None else received_at_ms
    return encode(StoredEvent(LOG_ID, seq, received, summarize(told, received), to_wire(told), told))


def write_segment(archive: Path, first: int, lines: Sequence[bytes], *, promised: int | None = None) -> Path:
    """Write a segment whose name has its number of lines, or another number."""
    count = len(lines) if promised is None else promised
    folder = archive / "day=2025-05-11" / "hour=08"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{LOG_ID}-{first}-{first + max(count, 1) - 1}-{count}.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(lines), compresslevel=1, mtime=0))
    return path


def truncate(path: Path, share: float) -> None:
    """Keep only the beginning of a file, like an interrupted copy."""
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
