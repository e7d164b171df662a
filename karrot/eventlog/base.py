"""The event log as its users see it: what is kept, what can go wrong.

The log is the truth. Every worker appends to it and reads from it; nothing that another worker must be able to show
lives anywhere else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from karrot.event import GroupKey, Kind, LagEvent, Source, Status
from karrot.signals import Signals

READ_LIMIT = 500
"""Rows one read returns at most: a reader that stays open keeps SQLite's write-ahead log from being reset."""

TURN_SHARE = 0.75
"""How much of its patience an append spends on its turn; the rest is for the disk. So one that was taken in turn is
answered in time wherever the disk is well."""

_PASSED_OVER = 50
"""Damaged events that are passed over in search of a whole one."""


class LogUnavailableError(Exception):
    """The log cannot be written or read; the message says why. Nothing of the call was stored."""


class UnconfirmedError(LogUnavailableError):
    """The disk has not answered in time: the one failure after which the call may yet be stored."""


class OverloadedError(Exception):
    """The call waited its whole time for its turn. Nothing of it was stored, and nothing will be."""


class Appended(NamedTuple):
    """The outcome of an append. ``tracked`` is false for a group beyond the bound: logged, but with no state."""

    seq: int
    tracked: bool


class Pending(Protocol):
    """An append on its way to the disk."""

    def wait(self) -> Appended:
        """The outcome, once it is known. Raises what `EventLog.append` raises."""

    def when_done(self, call: Callable[[], object]) -> None:
        """Have ``call`` run once when the outcome is known: in some thread, or at once."""

    def withdraw(self) -> bool:
        """Take it back: true if it has not been stored and will not be."""


class Cursor(NamedTuple):
    """A reader's place: everything up to and including ``seq`` in the log ``log_id`` is done."""

    log_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as the log keeps it; ``body`` is the exact JSON text received (or its wire form)."""

    log_id: str
    seq: int
    received_at_ms: int
    log_time_ms: int
    body: bytes
    event: LagEvent

    @property
    def event_id(self) -> str:
        """``<log_id>-<seq>``: unique even when a database is replaced."""
        return f"{self.log_id}-{self.seq}"


class StoredBody(NamedTuple):
    """One event as the log keeps it, unread: for who wants little of many."""

    seq: int
    received_at_ms: int
    observed_at_ms: int
    source: Source
    body: bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row whose checksum does not hold: it is passed over, and said so."""

    log_id: str
    seq: int


class EventSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest event of a group without its partitions, with its signals: all that an exporter needs.

    Stored as one value per group; fields may only be added at the end, with a default.
    """

    status_text: str
    kind: Kind
    source: Source
    observed_at_ms: int
    received_at_ms: int
    total_lag: int | None
    max_lag: int | None
    max_lag_topic: str | None
    partition_count: int | None
    complete: float | None
    bad: tuple[int, int, int, int]
    last_commit_ms: int | None
    signals: Signals

    @property
    def status(self) -> Status | None:
        """The status, or ``None`` for a text that Burrow is not known to send."""
        return Status.__members__.get(self.status_text)


class IncidentState(NamedTuple):
    """What the log knows of a group's incidents.

    ``open_id`` is ``None`` outside one, ``remembered`` holds the newest ids, oldest first.
    """

    open_id: str | None = None
    since_ms: int | None = None
    total: int = 0
    remembered: tuple[str, ...] = ()


class GroupState(msgspec.Struct, frozen=True, gc=False):
    """A group as of its newest event (newest by observation, not by arrival)."""

    key: GroupKey
    seq: int
    log_time_ms: int
    summary: EventSummary
    incident: IncidentState


class Changed(NamedTuple):
    """A group that was told of by event ``seq``, the last so far; ``state`` is ``None`` if it is deleted."""

    seq: int
    key: GroupKey
    state: GroupState | None


class Counter(NamedTuple):
    """A counter's value over all workers, since the log began."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Reject:
    """A body that was refused: its first 4 KiB, the stable code and the sentence the client got."""

    received_at_ms: int
    code: str
    detail: str
    source: Source
    body: bytes


@dataclass(frozen=True, slots=True)
class ReporterState:
    """What delivery last said of one reporter. ``state`` is ``idle``, ``ok`` or ``failing``."""

    name: str
    cursor: Cursor | None
    state: str = "idle"
    last_error: str | None = None
    last_error_ms: int | None = None
    last_success_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogSize:
    """How much there is. ``first_seq`` and ``last_seq`` are 0 in an empty log.

    ``bytes`` includes the ``wal_bytes`` of a write-ahead log, where there is one.
    """

    events: int
    bytes: int
    groups: int
    first_seq: int
    last_seq: int
    wal_bytes: int = 0


class EventLog(Protocol):
    """An append-only log of events with the newest state of every group beside it.

    Safe to use from several threads and, where it is a file, from several processes. Every method that writes raises
    `LogUnavailableError` if the storage refuses, `UnconfirmedError` if it does not answer, and `OverloadedError` if the
    turn did not come in time.
    """

    @property
    def log_id(self) -> str:
        """A random name given when the log was created."""

    def append(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Appended:
        """Store an event durably, count it and bring its group up to date: `begin`, and wait.

        ``age_ms`` is how long ago the event was observed, by a clock that cannot be set: an event older than the
        group's newest is logged but does not change the group.
        """

    def begin(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Pending:
        """Start an append without waiting for it. What can be refused at once raises at once."""

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        """The events after sequence number ``after``, oldest first, at most ``limit`` (and `READ_LIMIT`)."""

    def recent(self, key: GroupKey, limit: int = 50) -> Sequence[StoredEvent]:
        """The newest events of one group, newest first."""

    def bodies(self, key: GroupKey, limit: int = 50, after: int = 0) -> Sequence[StoredBody]:
        """The newest events of one group behind number ``after``, unread, newest first; fewer where they are large."""

    def event(self, seq: int) -> StoredEvent | None:
        """One event, if it is still kept and whole."""

    def latest(self, after: GroupKey | None = None, limit: int = READ_LIMIT) -> Sequence[GroupState]:
        """A page of the groups that have not expired and are not deleted, ordered by key, after ``after``."""

    def changed(self, after: int, limit: int = READ_LIMIT) -> Sequence[Changed]:
        """A page of the groups that were told of behind number ``after``, expired or not, in the order of that."""

    def group(self, key: GroupKey) -> GroupState | None:
        """One group, unless it has expired or is deleted."""

    def heard(self) -> Mapping[str, int]:
        """When each cluster's Burrow was last heard by webhook (epoch ms). Never expires."""

    def cursor(self, reporter: str) -> Cursor | None:
        """Where a reporter stands in this log; ``None`` if it never stood in it."""

    def save_reporter(self, state: ReporterState) -> None:
        """Keep a reporter's cursor and state."""

    def reporters(self) -> Sequence[ReporterState]:
        """What is kept of every reporter, by name."""

    def recall(self, reporter: str, name: str) -> bytes | None:
        """What a reporter noted last under a name."""

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Keep a reporter's note instead of what was noted before under the name."""

    def lead(self) -> bool:
        """Whether the caller's process leads; takes the lead if nobody has it."""

    def resign(self) -> None:
        """Give up the lead, if held."""

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a shared counter. Never blocks and never raises: kept in memory until the next commit."""

    def counters(self) -> Sequence[Counter]:
        """Every shared counter, with what this process has not committed yet."""

    def reject(self, reject: Reject) -> None:
        """Keep a refused body. Never blocks and never raises; bounded, the oldest go."""

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        """The newest refused bodies, newest first."""

    def expire(self) -> int:
        """Mark and count the groups that fell silent since the last call; return how many."""

    def prune(self) -> int:
        """Delete the events beyond age and size; return how many."""

    def size(self) -> LogSize:
        """How much there is."""

    def log_time_ms(self) -> int:
        """The log's own time: advances with the boot clock, whatever happens to the wall clock."""

    def writable(self) -> str | None:
        """``None`` if the last commit succeeded, else why not. This process's own word."""

    def flush(self) -> None:
        """Commit counters and rejects that wait in memory."""

    def close(self) -> None:
        """Stop writing and release every file."""


class Backlog(NamedTuple):
    """What a reporter has not had yet. ``age_s`` is that of the oldest, ``None`` if it cannot be read."""

    events: int
    age_s: float | None


def backlog(log: EventLog, state: ReporterState, size: LogSize) -> Backlog:
    """How far a push reporter is behind. One that never stood in this log has everything before it."""
    done = state.cursor.seq if state.cursor and state.cursor.log_id == log.log_id else 0
    done = max(done, size.first_seq - 1)
    waiting = max(0, size.last_seq - done)
    if not waiting:
        return Backlog(0, 0.0)
    readable = (stored for stored in log.read(done, _PASSED_OVER) if isinstance(stored, StoredEvent))
    oldest = next(readable, None)
    return Backlog(waiting, None if oldest is None else max(0, log.log_time_ms() - oldest.log_time_ms) / 1000)


def groups(log: EventLog, after: GroupKey | None = None) -> Iterator[GroupState]:
    """Every live group of a log beyond ``after``, page by page."""
    page = log.latest(after=after)
    while page:
        yield from page
        page = log.latest(after=page[-1].key)
