"""Writes each event to one segment of the archive, and saves a report on each write for the API and the pages."""

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import structlog

from karrot import telemetry
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.reporters.archive.segment_store import SegmentName, SegmentStore, StoredSegment, StoreError, end_ms, hour_at
from karrot.reporters.base import REPORT_NOTE, Context, Fact, Report, ReportFailed, Sent, Unreported
from karrot.settings import types
from karrot.settings.options import Archive
from karrot.text import instant


class Contents:
    """Counts the archive's segments by hour, because a month can have tens of thousands of segments.

    ``hours`` has the number and bytes of each hour's segments. ``last`` has each log's newest archived event.
    """

    def __init__(self, found: Iterable[StoredSegment]) -> None:
        self.hours: dict[str, tuple[int, int]] = {}
        self.last: dict[str, int] = {}
        for each in found:
            self.add(each)

    def total(self) -> tuple[int, int]:
        return sum(many for many, _ in self.hours.values()), sum(size for _, size in self.hours.values())

    def add(self, found: StoredSegment) -> None:
        name, (many, size) = found.name, self.hours.get(found.name.hour, (0, 0))
        self.hours[name.hour] = many + 1, size + found.size
        self.last[name.log_id] = max(self.last.get(name.log_id, 0), name.last)

    def replace(self, hour: str, found: Sequence[StoredSegment]) -> None:
        self.hours.pop(hour, None)
        for each in found:
            self.add(each)


GZIP = 16 + zlib.MAX_WBITS
"""The parameter ``wbits`` of zlib for gzip files."""


class Segment:
    """Compresses the lines of consecutive events with one log id. The same events always give the same bytes.

    Together, the lines have at most ``most_bytes`` before compression. A longer line has a segment alone. A segment
    belongs to the hour of its first event, and ends before the first event of a later hour. Events of an earlier hour,
    which come after a delay or a clock change, stay in the segment.
    """

    def __init__(self, first: StoredEvent, most_bytes: int, retention_ms: int) -> None:
        self._first, self._last, self._lines, self._size = first, first.seq, 0, 0
        # If the clock of the receiver was far behind, the retention would delete its hour at once.
        is_behind = first.received_at_ms < first.log_time_ms - retention_ms // 2
        self._hour = hour_at(first.log_time_ms if is_behind else first.received_at_ms)
        self._end_ms = end_ms(self._hour)
        self._most_bytes = most_bytes
        self._gzip = zlib.compressobj(wbits=GZIP)
        self._chunks: list[bytes] = []

    def add(self, stored: StoredEvent, line: bytes) -> bool:
        """Add an event. Return false if the event must start the next segment."""
        is_full = self._size + len(line) > self._most_bytes or stored.received_at_ms >= self._end_ms
        if self._lines and (is_full or stored.log_id != self._first.log_id):
            return False
        self._chunks.append(self._gzip.compress(line))
        self._last = stored.seq
        self._lines += 1
        self._size += len(line)
        return True

    def sealed(self) -> tuple[SegmentName, bytes]:
        name = SegmentName(self._hour, self._first.log_id, self._first.seq, self._last, self._lines)
        return name, b"".join([*self._chunks, self._gzip.flush()])


_LIST_EVERY_MS = 3_600_000

_AGE = types.duration(1, 2**40)
_SIZE = types.size(1, 2**60)
_MIB = 2**20
_log = structlog.get_logger(__name__)


class ArchiveReporter:
    """The push reporter of the archive. Each report writes one segment.

    The names of the segments show which events are in the archive. The reporter skips archived events, even after the
    cursor. So no event is written twice if the process crashes between the write and the cursor's move.
    """

    def __init__(self, options: Archive, store: SegmentStore, context: Context) -> None:
        self._options, self._store, self._context = options, store, context
        self._contents: Contents | None = None
        self._listed_ms = 0

    @property
    def every_s(self) -> float:
        """The seconds that an event may wait, until one second after the current hour at most."""
        now_ms = self._context.clock.wall_ms()
        return min(self._options.segment_s, (end_ms(hour_at(now_ms)) - now_ms) / 1000 + 1)

    def report(self, events: Unreported) -> None:
        """Write one segment with the next events that are not archived yet."""
        contents = self._known(events)
        segment, dropped = self._fill(events, contents.last)
        if segment is not None:
            if not self._context.leads():
                return  # without the lead, delivery does not move the cursor
            name, data = segment.sealed()
            self._contents = None  # after a failure, the segment may be stored: then list the archive again
            self._store.put(name, data)
            self._contents = contents
            written = StoredSegment(name, len(data))
            contents.add(written)
            self._count("written", [written])
            self._context.remember(REPORT_NOTE, msgspec.json.encode(self._report(contents, written)))
        if dropped:
            who = self._context.name
            self._context.count(telemetry.REPORTER_DROPPED, dropped, reporter=who, reason="unexpected")
        try:
            self._enforce_retention(contents)
        except StoreError as error:
            raise ReportFailed(f"retention_{error.reason}", error.text, is_reported=True) from error

    def close(self) -> None:
        self._store.close()

    def _known(self, events: Unreported) -> Contents:
        """List the archive before the first segment, and again every hour."""
        now_ms = self._context.clock.boot_ms()
        if self._contents is None or now_ms - self._listed_ms >= _LIST_EVERY_MS:
            contents = Contents(self._store.open())
            events.compare(contents.last)
            self._contents, self._listed_ms = contents, now_ms
        return self._contents

    def _fill(self, events: Unreported, last: Mapping[str, int]) -> tuple[Segment | None, int]:
        """Fill a segment with the events after ``last``. Return the segment, and the number of unencodable events."""
        segment, dropped = None, 0
        while (stored := events.peek()) is not None:
            if stored.seq > last.get(stored.log_id, 0):
                try:
                    line = encode(stored, body=self._options.body)
                except Exception:  # noqa: BLE001 - one unexpected event must not stop all later events
                    _log.exception("an event cannot be encoded", code="event_not_encoded", event_id=stored.event_id)
                    dropped += 1
                else:
                    segment = segment or Segment(stored, self._options.segment_bytes, self._options.retention_s * 1000)
                    if not segment.add(stored, line):
                        break
            next(events)
        return segment, dropped

    def _enforce_retention(self, contents: Contents) -> None:
        """Delete the oldest segments while the archive exceeds its limits of age or size.

        Each hour is listed before the deletion, because the totals may be old. The slower of two clocks decides, so
        that a clock that jumps forward does not delete a month.
        """
        now_ms = min(self._context.clock.wall_ms(), self._context.log_time_ms())
        while (hour := min(contents.hours, default=None)) is not None:
            is_old = end_ms(hour) <= now_ms - self._options.retention_s * 1000
            if not is_old and contents.total()[1] <= self._options.max_bytes:
                return
            listed = sorted(self._store.within(hour))
            contents.replace(hour, listed)
            excess = contents.total()[1] - self._options.max_bytes
            surplus: list[StoredSegment] = []
            for each in listed:
                if is_old or excess > 0:
                    surplus.append(each)
                    excess -= each.size
            self._store.remove(each.name for each in surplus)
            contents.replace(hour, listed[len(surplus) :])
            self._count("aged_out" if is_old else "over_size", surplus)

    def _count(self, outcome: str, segments: Sequence[StoredSegment]) -> None:
        if segments:
            labels, size = {"reporter": self._context.name, "outcome": outcome}, sum(each.size for each in segments)
            self._context.count(telemetry.REPORTER_ARCHIVE_SEGMENTS, len(segments), **labels)
            self._context.count(telemetry.REPORTER_ARCHIVE_BYTES, size, **labels)

    def _report(self, contents: Contents, written: StoredSegment) -> Report:
        options, (segments, size), at = self._options, contents.total(), instant(self._context.clock.wall_ms())
        held = f"{segments}, together {size / _MIB:.1f} MiB, from {min(contents.hours)} on"
        kept = f"{_AGE.show(options.retention_s)}, and at most {_SIZE.show(options.max_bytes)}"
        facts = (Fact("Place", str(options.place)), Fact("Segments", held), Fact("Kept", kept))
        return Report(at, 1, facts, (Sent(written.name.path, written.name.lines, "events", at),))
