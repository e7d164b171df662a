"""Defines the interface of a reporter, which passes events on to one destination (``docs/reporters.md``).

An entry point of the group ``karrot.reporters`` names a function. It takes a `Context`, and returns a `PushReporter`,
which gets the events after its cursor, or a `PullReporter`, which is read at each scrape.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from karrot.clock import Clock
from karrot.eventlog.base import (
    READ_LIMIT,
    Cursor,
    Damaged,
    EventLog,
    GroupState,
    LogSize,
    LogUnavailableError,
    ReporterState,
    StoredEvent,
)

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


GROUP = "karrot.reporters"
"""The name of the entry point group of reporters."""


@dataclass(frozen=True, slots=True)
class Context:
    """What Karrot gives to a reporter. ``docs/reporters.md`` describes each attribute.

    A built-in reporter gets its part of Karrot's settings as ``options``. The texts in ``settings`` are for others.
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
    options: Any = None


class Unreported(Iterator[StoredEvent]):
    """The stored events after a reporter's cursor, oldest first, up to the newest one of the time when it was made.

    It reads the log page by page. It skips damaged events. ``cursor`` is at the last event that was taken. ``taken``,
    ``pruned`` and ``damaged`` count the events taken, those that the log deleted before, and those that were skipped.
    ``is_at_end`` says that a reader found no further event.
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
        """The next event, without taking it. ``None`` if there is none."""
        while self._ahead is None and (row := next(self._rows, None)) is not None:
            if isinstance(row, StoredEvent):
                self._ahead = row
            else:
                self._pass(row.seq)
                self.damaged += 1
        self.is_at_end = self._ahead is None
        return self._ahead

    def groups(self) -> Iterator[GroupState]:
        """The newest state of each group with an event after the cursor. This takes all events, without reading them.

        A deleted group comes too. A group that gets an event meanwhile can come twice, the newer state last.
        """
        after, size = self.cursor.seq, self._log.size()
        self._rows, self._ahead, self.is_at_end = iter(()), None, True
        if size.last_seq > after:
            self.pruned += max(0, size.first_seq - 1 - after)
            self.taken += size.last_seq - max(after, size.first_seq - 1)
            self.cursor = Cursor(self.cursor.log_id, size.last_seq)
        while page := self._log.changed(after):
            yield from page
            after = page[-1].last_seq
            if after >= size.last_seq and len(page) < READ_LIMIT:
                return

    def _read(self) -> Iterator[StoredEvent | Damaged]:
        began_ms = self._log.log_time_ms()
        page = self._log.read(self.cursor.seq)
        yield from page  # always, so no difference between clocks can stop a reporter
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
    """Raise this from `PushReporter.report` to name the reason of a failure.

    ``reason`` is stable, for the counter. ``text`` is for people. ``retry_in_s`` is the wait before the next report. If
    it is ``None``, the wait is a second after the first failure, and doubles with each further failure up to a minute.
    With ``is_reported``, what was taken is reported all the same: the cursor moves, and the next report is not delayed.
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
        """Seconds from one report to the next. 0: report as soon as there are events."""

    def report(self, events: Unreported) -> None:
        """Pass events on. What this took from ``events`` when it returns is reported, and the cursor moves there.

        There is at least one event. The events that this did not take come in the next call, at once. If this raises,
        the same events come again.
        """

    def close(self) -> None:
        """Release all resources. Karrot calls this once, after the last report."""


@runtime_checkable
class PullReporter(Protocol):
    """A reporter that Karrot reads at each scrape."""

    def collector(self, log: EventLog) -> "Collector":
        """A collector. It reads the log at scrape time, and keeps no metric state."""


Reporter = PushReporter | PullReporter

_PASSED_OVER = 50
"""The number of events that the search for the oldest undamaged event reads."""


class Backlog(NamedTuple):
    """The events that a reporter has not handled yet. ``age_s`` is the age of the oldest. ``None`` means unknown."""

    events: int
    age_s: float | None


def backlog(log: EventLog, state: ReporterState, size: LogSize) -> Backlog:
    """A push reporter's backlog. If the reporter has no cursor in this log, its backlog is the whole log."""
    done = state.cursor.seq if state.cursor and state.cursor.log_id == log.log_id else 0
    done = max(done, size.first_seq - 1)
    waiting = max(0, size.last_seq - done)
    if not waiting:
        return Backlog(0, 0.0)
    try:
        found = log.read(done, _PASSED_OVER)
    except LogUnavailableError:  # the sizes can come from memory, and then the number is known without the events
        return Backlog(waiting, None)
    oldest = next((stored for stored in found if isinstance(stored, StoredEvent)), None)
    return Backlog(waiting, None if oldest is None else max(0, log.log_time_ms() - oldest.log_time_ms) / 1000)


class Backoff(NamedTuple):
    """A delay that doubles with each failure, from ``first_s`` up to ``most_s``."""

    first_s: float = 1.0
    most_s: float = 60.0

    def spread_seconds(self, failures: int, random: Random) -> float:
        """A random delay after the n-th failure, at least half of the full one: so senders do not retry together."""
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1)


REPORT_NOTE = "report"
"""The name of the note in the log."""


class Fact(msgspec.Struct, frozen=True):
    """One named fact about the reporter, as text."""

    name: str
    text: str


class Sent(msgspec.Struct, frozen=True):
    """One accepted item: its name at the destination, its value, and the time when the value was observed."""

    what: str
    value: float
    unit: str | None
    observed_at_ms: int


class RefusedDatum(msgspec.Struct, frozen=True):
    """One item that was not sent and never will be. ``reason`` is stable. ``text`` is for people."""

    what: str
    reason: str
    text: str
    at_ms: int


class Report(msgspec.Struct, frozen=True):
    """The last send. ``sent`` and ``refused`` are the newest items. ``sent_count`` is the number of all items sent."""

    at_ms: int
    sent_count: int
    facts: tuple[Fact, ...] = ()
    sent: tuple[Sent, ...] = ()
    refused: tuple[RefusedDatum, ...] = ()


def read_report(note: bytes | None) -> Report | None:
    """The report in a note. ``None`` if there is no readable report."""
    try:
        return None if note is None else msgspec.json.decode(note, type=Report)
    except msgspec.DecodeError:
        return None  # an older Karrot wrote it, and the next send replaces it
