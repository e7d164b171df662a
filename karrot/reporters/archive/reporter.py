"""Writes each event to one segment of the archive, and saves a report on each write for the API and the pages."""

from collections.abc import Sequence

import msgspec
import structlog

from karrot import telemetry
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.reporters.archive.options import Options
from karrot.reporters.archive.retention import Amount, Contents, Retention
from karrot.reporters.archive.segment_buffer import Sealed, SegmentBuffer
from karrot.reporters.archive.segment_store import ArchiveHour, SegmentStore, StoredSegment, StoreError
from karrot.reporters.base import Context, Sending, Trouble
from karrot.reporters.last_send import NOTE, Fact, Report, Sent
from karrot.reporters.retry_delay import Retry
from karrot.settings import types

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

    def __init__(self, options: Options, store: SegmentStore, context: Context) -> None:
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
            self._remember(NOTE, report_of(self._options, self._known(), written, self._clock.wall_ms()))
        return Sending(calls + len(written), trouble)

    def owed(self, log_id: str) -> int | None:
        """The sequence number of a log's oldest event that is not written yet."""
        return self._buffer.oldest(log_id)

    def close(self) -> None:
        """Release the archive, so that another process can write to it."""
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
        """When to finish a segment that starts with this event, by the boot clock: at the latest when its hour ends.

        If that hour is already over, only the maximum age of a segment applies.
        """
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
        """Write the finished segments. A segment that fails is kept unchanged, because it may have been stored.

        A process that does not lead any more writes none: the next leader has other segments with these events.
        """
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
        """Delete segments beyond the limits. Of the wall clock and the log's own clock, the slower one gives the age.

        So if one clock jumps ahead, a month of segments is not deleted.
        """
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


def report_of(options: Options, contents: Contents, written: Sequence[StoredSegment], at_ms: int) -> bytes:
    """The report on a send that wrote segments, as a note for the log."""
    facts = [Fact("Place", str(options.place))]
    if contents.oldest is not None:
        size = f"{contents.size / _MIB:.1f} MiB"
        facts.append(Fact("Segments", f"{contents.segments}, together {size}, from {contents.oldest.folder} on"))
    facts.append(Fact("Kept", f"{_AGE.show(options.retention_s)}, and at most {_SIZE.show(options.max_bytes)}"))
    sent = tuple(Sent(each.name.path, each.name.lines, "events", at_ms) for each in written[-_SHOWN:])
    return msgspec.json.encode(Report(at_ms, len(written), tuple(facts), sent))
