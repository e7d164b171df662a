"""Defines the interface of a reporter, which passes events on to one destination (``docs/reporters.md``).

An entry point of the group ``karrot.reporters`` names a function that takes a `Context` and returns a reporter. A
`PushReporter` gets the events after its cursor. A `PullReporter` is read at each scrape.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.eventlog.base import (
    Cursor,
    Damaged,
    GroupState,
    LogSize,
    LogUnavailableError,
    ReporterState,
    StoredEvent,
)
from karrot.eventlog.event_log import EventLog

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


GROUP = "karrot.reporters"
"""The name of the entry point group of reporters."""


@dataclass(frozen=True, slots=True)
class Context:
    """The objects that a reporter gets from Karrot. ``docs/reporters.md`` describes each attribute.

    ``options`` has the settings of a built-in reporter. ``settings`` has the strings for a third-party reporter.
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)
    count: Callable[..., None]
    clock: Clock
    log_time_ms: Callable[[], int]
    recall: Callable[[str], bytes | None]
    remember: Callable[[str, bytes], None]
    leads: Callable[[], bool] = lambda: True
    cut_off: Callable[[], frozenset[str]] = frozenset
    heard: Callable[[], Mapping[str, int]] = dict
    event: Callable[[int], StoredEvent | None] = lambda _: None
    live: Callable[[], Sequence[GroupState]] = tuple
    muted: Callable[[Sequence[GroupKey]], Collection[GroupKey]] = lambda _: ()
    explain: Callable[[GroupState], Any] = lambda _: None
    options: Any = None


class Unreported(Iterator[StoredEvent]):
    """Yields the stored events after a reporter's cursor, oldest first, up to the time when the iteration began.

    The iterator reads the log page by page, and skips damaged events. ``cursor`` is at the last event taken.
    ``taken`` counts the events taken, ``pruned`` the events that the log deleted before, and ``damaged`` the events
    skipped. ``is_at_end`` is true after a read without a further event.
    """

    def __init__(self, log: EventLog, after: Cursor) -> None:
        self._log = log
        self._rows = self._read()
        self._ahead: StoredEvent | None = None
        self.cursor = after
        self.is_at_end = False
        self.taken = self.pruned = self.damaged = 0

    def __next__(self) -> StoredEvent:
        event = self.peek()
        if event is None:
            raise StopIteration
        self._ahead = None
        self._pass(event.seq)
        self.taken += 1
        return event

    def peek(self) -> StoredEvent | None:
        """Return the next event without taking it, or ``None`` at the end."""
        while self._ahead is None and (row := next(self._rows, None)) is not None:
            if isinstance(row, StoredEvent):
                self._ahead = row
            else:
                self._pass(row.seq)
                self.damaged += 1
        self.is_at_end = self._ahead is None
        return self._ahead

    def groups(self) -> Iterator[GroupState]:
        """Take all events, but read and yield only the newest state of each group with an event.

        Deleted groups are included. A group with an event during the iteration can come again, with the newer state.
        """
        after, size = self.cursor.seq, self._log.size()
        self._rows, self._ahead, self.is_at_end = iter(()), None, True
        if size.last_seq > after:
            self.pruned += max(0, size.first_seq - 1 - after)
            self.taken += size.last_seq - max(after, size.first_seq - 1)
            self.cursor = Cursor(self.cursor.log_id, size.last_seq)
        yield from self._log.changed(after)

    def compare(self, newest: Mapping[str, int]) -> None:
        """Tell the log the newest event of each log id at the destination, so that the log notices what it has lost."""
        self._log.compare(newest)

    def _read(self) -> Iterator[StoredEvent | Damaged]:
        began_ms = self._log.log_time_ms()
        page = self._log.read(self.cursor.seq)
        yield from page  # the first page is not limited by time, so clock differences cannot stop a reporter
        while page and (page := self._log.read(page[-1].seq)):
            for row in page:
                if isinstance(row, StoredEvent) and row.log_time_ms > began_ms:
                    return
                yield row

    def _pass(self, seq: int) -> None:
        # Only pruning leaves gaps between sequence numbers, so a gap is the number of pruned events.
        self.pruned += seq - self.cursor.seq - 1
        self.cursor = Cursor(self.cursor.log_id, seq)


class ReportFailed(Exception):  # noqa: N818 (the name says what happened)
    """`PushReporter.report` raises this exception to name the reason of a failure.

    ``reason`` is a stable label value. ``text`` is for people. ``retry_in_s`` is the wait before the next report.
    ``None`` means a wait of one second that doubles with each further failure, up to a minute. With
    ``is_reported``, the cursor moves, and the next report is not delayed.
    """

    def __init__(self, reason: str, text: str, retry_in_s: float | None = None, *, is_reported: bool = False) -> None:
        super().__init__(text)
        self.reason, self.text = reason, text
        self.retry_in_s, self.is_reported = retry_in_s, is_reported


@runtime_checkable
class PushReporter(Protocol):
    """A reporter that gets every event at least once, in the order of the log."""

    @property
    def every_s(self) -> float:
        """The seconds between two reports. With 0, Karrot calls `report` as soon as there are events."""

    def report(self, events: Unreported) -> None:
        """Send events to the destination. After this call, the cursor moves to the last event taken from ``events``.

        ``events`` has at least one event. If events are left, Karrot calls this method again at once. After an
        exception, the next call gets the same events again.
        """

    def close(self) -> None:
        """Release all resources. Karrot calls this method once, after the last report."""


@runtime_checkable
class IdleReporter(PushReporter, Protocol):
    """A push reporter that also has work while there are no new events."""

    def idle(self) -> None:
        """Do what is due. Karrot calls this method about five times a second while there are no new events.

        An exception counts as a failed report.
        """


@runtime_checkable
class PullReporter(Protocol):
    """A reporter that Karrot reads at each scrape."""

    def collector(self, log: EventLog) -> "Collector":
        """Return a collector that reads the log at each scrape and keeps no metric state."""


Reporter = PushReporter | PullReporter

_PASSED_OVER = 50
"""The number of events that the search for the oldest undamaged event reads."""


class Backlog(NamedTuple):
    """The events that a reporter has not handled yet. ``age_s`` is the oldest event's age, ``None`` if unknown."""

    events: int
    age_s: float | None


def backlog(log: EventLog, state: ReporterState, size: LogSize) -> Backlog:
    """Compute the backlog of a push reporter. Without a cursor, the backlog is the whole log."""
    done = max(state.cursor.seq if state.cursor else 0, size.first_seq - 1)
    waiting = max(0, size.last_seq - done)
    if not waiting:
        return Backlog(0, 0.0)
    try:
        found = log.read(done, _PASSED_OVER)
    except LogUnavailableError:  # only the sizes, which can come from memory, are known
        return Backlog(waiting, None)
    oldest = next((stored for stored in found if isinstance(stored, StoredEvent)), None)
    return Backlog(waiting, None if oldest is None else max(0, log.log_time_ms() - oldest.log_time_ms) / 1000)


def retry_delay_s(failures: int, random: Random, *, first_s: float = 1.0, most_s: float = 60.0) -> float:
    """A delay that doubles with each failure. It is random from a half on, so that senders do not retry together."""
    return min(most_s, first_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1)


REPORT_NOTE = "report"
"""The key under which the log keeps a reporter's report."""


class Fact(msgspec.Struct, frozen=True):
    """One named fact about the reporter, as text."""

    name: str
    text: str


class Sent(msgspec.Struct, frozen=True):
    """One accepted item: its name at the destination, its value, and the time when the value was observed."""

    what: str
    value: float
    unit: str | None
    observed_at: datetime | None


class RefusedDatum(msgspec.Struct, frozen=True):
    """One item that is never sent. ``reason`` is also the label ``reason`` of the counter of dropped values."""

    what: str
    reason: str
    text: str
    at: datetime | None


class Report(msgspec.Struct, frozen=True):
    """A report on the last send. ``sent`` and ``refused`` have the newest items. ``sent_count`` counts all sent."""

    at: datetime | None
    sent_count: int
    facts: tuple[Fact, ...] = ()
    sent: tuple[Sent, ...] = ()
    refused: tuple[RefusedDatum, ...] = ()


def read_report(note: bytes | None) -> Report | None:
    """Decode the report in a note. Return ``None`` without a note, or if the note cannot be decoded."""
    try:
        return None if note is None else msgspec.json.decode(note, type=Report)
    except msgspec.DecodeError:
        return None  # an older Karrot wrote the note, and the next send replaces it
