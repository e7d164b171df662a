"""Writes each event to one segment of the archive, and saves a report on each write for the API and the pages."""

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from karrot import telemetry
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.reporters.archive.segment_store import ArchiveHour, SegmentName, SegmentStore, StoredSegment, StoreError
from karrot.reporters.base import REPORT_NOTE, Context, Fact, Report, Retry, Sending, Sent, Trouble
from karrot.settings import types
from karrot.settings.options import Archive


class Amount(NamedTuple):
    """A number of segments, and their size in bytes."""

    segments: int = 0
    size: int = 0

    def plus(self, size: int) -> "Amount":
        return Amount(self.segments + 1, self.size + size)


class Contents:
    """The contents of the archive, as totals by hour, because a month can have tens of thousands of segments."""

    def __init__(self, found: Iterable[StoredSegment]) -> None:
        self._hours: dict[ArchiveHour, Amount] = {}
        self._last: dict[str, int] = {}
        self._size = 0
        for each in found:
            self.add(each)

    @property
    def size(self) -> int:
        return self._size

    @property
    def segments(self) -> int:
        return sum(amount.segments for amount in self._hours.values())

    @property
    def oldest(self) -> ArchiveHour | None:
        return min(self._hours, default=None)

    def last(self, log_id: str) -> int:
        """The sequence number of a log's newest archived event. 0 if there is none."""
        return self._last.get(log_id, 0)

    def add(self, found: StoredSegment) -> None:
        name = found.name
        self._hours[name.hour] = self._hours.get(name.hour, Amount()).plus(found.size)
        self._last[name.log_id] = max(self.last(name.log_id), name.last)
        self._size += found.size

    def replace(self, hour: ArchiveHour, found: Iterable[StoredSegment]) -> None:
        """Replace the totals of an hour with the totals of these segments."""
        self._size -= self._hours.pop(hour, Amount()).size
        for each in found:
            self.add(each)


class Removed(NamedTuple):
    """The segments that were deleted because of their age, and those deleted because of the archive's size."""

    aged: Amount
    over: Amount


class Retention(NamedTuple):
    """An hour is deleted ``age_ms`` after its end, and the oldest segments beyond ``most_bytes``."""

    age_ms: int
    most_bytes: int

    def enforce(self, store: SegmentStore, contents: Contents, now_ms: int) -> Removed:
        """Delete the segments beyond the limits. Raises `StoreError`, and then ``contents`` is still correct."""
        aged = over = Amount()
        for hour in _hours_from_the_oldest(contents):
            if hour.end_ms > now_ms - self.age_ms:
                break
            aged = _remove(store, contents, hour, list(store.within(hour)), aged)
        for hour in _hours_from_the_oldest(contents):
            if contents.size <= self.most_bytes:
                break
            over = _remove(store, contents, hour, self._surplus(store, contents, hour), over)
        return Removed(aged, over)

    def _surplus(self, store: SegmentStore, contents: Contents, hour: ArchiveHour) -> list[StoredSegment]:
        """The fewest oldest segments of an hour that make the archive small enough. If no number does, all segments."""
        surplus: list[StoredSegment] = []
        excess = contents.size - self.most_bytes
        for each in sorted(store.within(hour), key=lambda found: found.name.first):
            if excess <= 0:
                break
            surplus.append(each)
            excess -= each.size
        return surplus


def _hours_from_the_oldest(contents: Contents) -> Iterator[ArchiveHour]:
    while (hour := contents.oldest) is not None:
        yield hour


def _remove(
    store: SegmentStore, contents: Contents, hour: ArchiveHour, found: list[StoredSegment], removed: Amount
) -> Amount:
    store.remove(each.name for each in found)
    contents.replace(hour, store.within(hour))
    for each in found:
        removed = removed.plus(each.size)
    return removed


GZIP = 16 + zlib.MAX_WBITS
"""The parameter ``wbits`` of zlib for gzip files."""


class Sealed(NamedTuple):
    """A finished segment. The same events always give the same bytes."""

    name: SegmentName
    data: bytes


class _Growing:
    """A segment that still takes lines. All lines are from one log, and in the order of the log."""

    def __init__(self, first: StoredEvent, deadline_ms: int, level: int) -> None:
        self.hour = ArchiveHour.at(first.received_at_ms)
        self.hour_ends_ms = self.hour.end_ms
        self.log_id = first.log_id
        self.first = self.last = first.seq
        self.lines = 0
        self.size = 0
        self.deadline_ms = deadline_ms
        self._gzip = zlib.compressobj(level, wbits=GZIP)
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
    after a delay or if the clock went back, stay in the current segment.
    """

    def __init__(self, most_bytes: int, level: int = 6) -> None:
        self._most_bytes, self._level = most_bytes, level
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
            self._growing = _Growing(stored, deadline_ms, self._level)
        self._growing.add(stored.seq, line)

    def seal(self) -> None:
        if self._growing is not None:
            self.sealed.append(self._growing.sealed())
            self._growing = None

    def oldest(self, log_id: str) -> int | None:
        """The sequence number of a log's oldest event that is not stored yet."""
        waiting = [each.name.first for each in self.sealed if each.name.log_id == log_id]
        if self._growing is not None and self._growing.log_id == log_id:
            waiting.append(self._growing.first)
        return min(waiting, default=None)


_MOST_SEALED = 4
"""The most finished segments that wait in memory during an outage. Further events wait in the log."""

_LIST_EVERY_MS = 3_600_000

_SHOWN = 20
_AGE = types.duration(1, 2**40)
_SIZE = types.size(1, 2**60)
_MIB = 2**20
_log = structlog.get_logger(__name__)


class ArchiveReporter:
    """A paced and bounded reporter: see `karrot.reporters.base`.

    The names of the segments show which events are in the archive. The reporter skips an event that is in a segment,
    even if the cursor is before the event. So a crash after a segment was stored, and before the cursor moved, writes
    nothing twice.
    """

    def __init__(self, options: Archive, store: SegmentStore, context: Context) -> None:
        self._options = options
        self._store = store
        self._retention = Retention(options.retention_s * 1000, options.max_bytes)
        self._clock = context.clock
        self._log_time_ms = context.log_time_ms
        self._leads = context.leads
        self._reporter, self._count, self._remember = context.name, context.count, context.remember
        self._buffer = SegmentBuffer(options.segment_bytes)
        self._contents: Contents | None = None
        self._listed_ms = 0
        self._passed_over = False
        self._retry = Retry(context.clock.boot_ms)

    def full(self) -> bool:
        """Whether events must wait in the log. They wait until the archive has been listed, and during an outage."""
        return self._contents is None or len(self._buffer.sealed) >= _MOST_SEALED

    def take(self, events: Sequence[StoredEvent]) -> None:
        """Add the events that are not archived yet to segments."""
        contents = self._known()
        for stored in events:
            if stored.seq <= contents.last(stored.log_id):
                self._passed_over = True
            else:
                self._add_line(stored)

    def due_in(self) -> float:
        """Seconds until a segment must be finished, or until the next attempt to write one."""
        if self._retry.is_waiting:
            return self._retry.due_in()
        if self._contents is None or self._buffer.sealed or self._passed_over:
            return 0.0
        deadline_ms = self._buffer.deadline_ms
        return self._options.segment_s if deadline_ms is None else (deadline_ms - self._clock.boot_ms()) / 1000

    def send(self) -> Sending:
        """Write the finished segments. If a send is not due yet, as at shutdown, finish and write all segments."""
        at_the_end = self.due_in() > 0
        written: list[StoredSegment] = []
        try:
            calls = self._find_out()
            self._write(written, at_the_end=at_the_end)
        except StoreError as error:
            return self._failed(error, len(written))
        self._retry.went_well()
        self._passed_over = False
        trouble = self._enforce_retention()
        if written:
            self._remember(REPORT_NOTE, report_of(self._options, self._known(), written, self._clock.wall_ms()))
        return Sending(calls + len(written), trouble)

    def owed(self, log_id: str) -> int | None:
        return self._buffer.oldest(log_id)

    def close(self) -> None:
        self._store.close()

    def _add_line(self, stored: StoredEvent) -> None:
        try:
            line = encode(stored, body=self._options.body)
        except Exception:  # noqa: BLE001 - one unexpected event must not stop all later events
            _log.exception("an event cannot be encoded", code="event_not_encoded", event_id=stored.event_id)
            self._count(telemetry.REPORTER_DROPPED.name, 1, reporter=self._reporter, reason="unexpected")
        else:
            self._buffer.add(stored, line, self._deadline_ms(stored))

    def _deadline_ms(self, stored: StoredEvent) -> int:
        """When to finish a segment that starts with this event: at the end of its hour, if that is to come."""
        rest_of_hour_ms = ArchiveHour.at(stored.received_at_ms).end_ms - self._clock.wall_ms()
        longest_ms = self._options.segment_s * 1000
        return self._clock.boot_ms() + (min(longest_ms, rest_of_hour_ms) if rest_of_hour_ms > 0 else longest_ms)

    def _known(self) -> Contents:
        if self._contents is None:
            raise RuntimeError("the archive has not been listed yet")
        return self._contents

    def _find_out(self) -> int:
        """List the archive at the start, and then every hour. Return the number of listings in this call: 0 or 1."""
        now_ms = self._clock.boot_ms()
        if self._contents is not None and now_ms - self._listed_ms < _LIST_EVERY_MS:
            return 0
        self._contents, self._listed_ms = Contents(self._store.open()), now_ms
        return 1

    def _write(self, written: list[StoredSegment], *, at_the_end: bool) -> None:
        self._write_sealed(written)
        deadline_ms = self._buffer.deadline_ms
        if deadline_ms is not None and (at_the_end or deadline_ms <= self._clock.boot_ms()):
            self._buffer.seal()
            self._write_sealed(written)

    def _write_sealed(self, written: list[StoredSegment]) -> None:
        """Write the finished segments while this process leads. One that fails is kept: it may be stored."""
        while self._buffer.sealed and self._leads():
            segment: Sealed = self._buffer.sealed[0]
            self._store.put(segment.name, segment.data)
            self._buffer.sealed.popleft()
            found = StoredSegment(segment.name, len(segment.data))
            self._known().add(found)
            written.append(found)
            self._count_segments("written", Amount(1, found.size))

    def _failed(self, error: StoreError, written: int) -> Sending:
        self._retry.failed()
        return Sending(written + 1, Trouble(error.reason, str(error)))

    def _enforce_retention(self) -> Trouble | None:
        """Delete segments beyond the limits. The slower of two clocks counts, so that no jump deletes a month."""
        now_ms = min(self._clock.wall_ms(), self._log_time_ms())
        try:
            removed = self._retention.enforce(self._store, self._known(), now_ms)
        except StoreError as error:
            return Trouble(f"retention_{error.reason}", str(error))
        self._count_segments("aged_out", removed.aged)
        self._count_segments("over_size", removed.over)
        return None

    def _count_segments(self, outcome: str, amount: Amount) -> None:
        if amount.segments:
            labels = {"reporter": self._reporter, "outcome": outcome}
            self._count(telemetry.REPORTER_ARCHIVE_SEGMENTS.name, amount.segments, **labels)
            self._count(telemetry.REPORTER_ARCHIVE_BYTES.name, amount.size, **labels)


def report_of(options: Archive, contents: Contents, written: Sequence[StoredSegment], at_ms: int) -> bytes:
    facts = [Fact("Place", str(options.place))]
    if contents.oldest is not None:
        size = f"{contents.size / _MIB:.1f} MiB"
        facts.append(Fact("Segments", f"{contents.segments}, together {size}, from {contents.oldest.folder} on"))
    facts.append(Fact("Kept", f"{_AGE.show(options.retention_s)}, and at most {_SIZE.show(options.max_bytes)}"))
    sent = tuple(Sent(each.name.path, each.name.lines, "events", at_ms) for each in written[-_SHOWN:])
    return msgspec.json.encode(Report(at_ms, len(written), tuple(facts), sent))
