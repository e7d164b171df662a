"""Compresses events into segments. A new segment starts by size, by hour and by log."""

import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from karrot.eventlog.base import StoredEvent
from karrot.reporters.archive.segment_store import ArchiveHour, SegmentName

GZIP = 16 + zlib.MAX_WBITS
"""The parameter ``wbits`` of zlib for gzip files."""

_compressor = partial(zlib.compressobj, 6, wbits=GZIP)


class Compressor(Protocol):
    """Compresses data piece by piece into one gzip file."""

    def compress(self, data: bytes, /) -> bytes:
        """Take the next piece. Return the bytes of the file that are ready."""

    def flush(self) -> bytes:
        """The rest of the file."""


class Sealed(NamedTuple):
    """A finished segment. The same events always give the same bytes."""

    name: SegmentName
    data: bytes


class _Growing:
    """A segment that still takes lines. All lines are from one log, and in the order of the log."""

    def __init__(self, first: StoredEvent, deadline_ms: int, gzip: Compressor) -> None:
        self.hour = ArchiveHour.at(first.received_at_ms)
        self.hour_ends_ms = self.hour.end_ms
        self.log_id = first.log_id
        self.first = self.last = first.seq
        self.lines = 0
        self.size = 0
        self.deadline_ms = deadline_ms
        self._gzip = gzip
        self._chunks: list[bytes] = []

    def add(self, seq: int, line: bytes) -> None:
        self._chunks.append(self._gzip.compress(line))
        self.last = seq
        self.lines += 1
        self.size += len(line)

    def sealed(self) -> Sealed:
        data = b"".join([*self._chunks, self._gzip.flush()])
        return Sealed(SegmentName(self.hour, self.log_id, self.first, self.last, self.lines), data)


class SegmentBuffer:
    """Segments that are not stored yet, oldest first. The last one may still grow. Only one thread may use them.

    The lines of a segment have at most ``most_bytes`` before compression, except a single longer line. A segment
    belongs to the hour of its first event, and ends before the first event of a later hour. Events of earlier hours,
    after a delay or if the clock went back, stay in the current segment. ``compressor`` creates a segment's compressor.
    """

    def __init__(self, most_bytes: int, compressor: Callable[[], Compressor] = _compressor) -> None:
        self._most_bytes = most_bytes
        self._compressor = compressor
        self._growing: _Growing | None = None
        self.sealed: deque[Sealed] = deque()

    @property
    def deadline_ms(self) -> int | None:
        """When the growing segment must be finished. ``None`` if no segment is growing."""
        return None if self._growing is None else self._growing.deadline_ms

    def add(self, stored: StoredEvent, line: bytes, deadline_ms: int) -> None:
        """Add an event. If it starts a segment, ``deadline_ms`` is the deadline of that segment."""
        growing = self._growing
        if growing is not None and (
            stored.log_id != growing.log_id
            or growing.size + len(line) > self._most_bytes
            or stored.received_at_ms >= growing.hour_ends_ms
        ):
            self.seal()
        if self._growing is None:
            self._growing = _Growing(stored, deadline_ms, self._compressor())
        self._growing.add(stored.seq, line)

    def seal(self) -> None:
        """Finish the growing segment, if there is one."""
        if self._growing is not None:
            self.sealed.append(self._growing.sealed())
            self._growing = None

    def oldest(self, log_id: str) -> int | None:
        """The sequence number of a log's oldest event that is not stored yet."""
        waiting = [each.name.first for each in self.sealed if each.name.log_id == log_id]
        if self._growing is not None and self._growing.log_id == log_id:
            waiting.append(self._growing.first)
        return min(waiting, default=None)
