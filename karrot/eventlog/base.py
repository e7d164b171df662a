"""Defines the event log: what every store of it keeps and does, and how it can fail.

The log is the truth: every worker appends to it and reads from it. What another worker must be able to show is kept
nowhere else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import msgspec

from karrot.event import GroupKey, Kind, LagEvent, Source, Status, is_burrow_itself
from karrot.signals import Signals

READ_LIMIT = 500
"""The most rows that one read returns. A read that takes long keeps SQLite's write-ahead log from being reset."""

TURN_SHARE = 0.75
"""The share of its patience that an append waits for its turn; the rest is for the disk. So an append whose turn came
is answered in time, unless the disk is slow."""

_LONGEST_ERROR = 500
_PASSED_OVER = 50
"""How many damaged events are skipped in search of a whole one."""


class LogUnavailableError(Exception):
    """The log cannot be written or read; the message says why. Nothing of the call was stored."""


class UnconfirmedError(LogUnavailableError):
    """The disk has not answered in time. The only failure after which the call may still be stored."""


class OverloadedError(Exception):
    """The call waited for its turn until its time was over. Nothing of it was or will be stored."""


class Appended(NamedTuple):
    """The outcome of an append. ``tracked`` is false for a group beyond the bound: logged, but with no state."""

    seq: int
    tracked: bool


class PendingAppend(Protocol):
    """An append that may not be stored yet."""

    def wait(self) -> Appended:
        """The outcome, once it is known. Raises what `Events.append` raises."""

    def when_done(self, call: Callable[[], object]) -> None:
        """Run ``call`` once when the outcome is known: in any thread, or at once if it is known already."""

    def withdraw(self) -> bool:
        """Cancel the append. True if it was not stored and will not be."""


class Cursor(NamedTuple):
    """How far a reader has got: it has handled everything up to and including ``seq`` of the log ``log_id``."""

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
    """One event as the log keeps it, not decoded: for readers that need little of many events."""

    seq: int
    received_at_ms: int
    observed_at_ms: int
    source: Source
    body: bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row whose checksum is wrong. Readers skip it and report it."""

    log_id: str
    seq: int


class EventSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest event of a group, with its signals and without its partitions: all that an exporter needs.

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
    """What the log knows of a group's incidents: ``open_id``, if one is open, and the newest ids, oldest first."""

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

    @property
    def is_of_burrow(self) -> bool:
        """Whether it is Burrow's own group: see `karrot.event.is_burrow_itself`."""
        return is_burrow_itself(self.key.consumer, self.summary.max_lag_topic)


class Changed(NamedTuple):
    """A group whose last event so far is ``seq``; ``state`` is ``None`` if the group is deleted."""

    seq: int
    key: GroupKey
    state: GroupState | None


class Counter(NamedTuple):
    """A counter's value, summed over all workers since the log began."""

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
    """The last known state of one reporter. ``state`` is ``idle``, ``ok`` or ``failing``."""

    name: str
    cursor: Cursor | None
    state: str = "idle"
    last_error: str | None = None
    last_error_ms: int | None = None
    last_success_ms: int | None = None

    def well(self, now_ms: int) -> "ReporterState":
        """The state after a success; the last error stays."""
        return replace(self, state="ok", last_success_ms=now_ms)

    def failing(self, error: str, now_ms: int) -> "ReporterState":
        """The state after a failure, with the beginning of the error."""
        return replace(self, state="failing", last_error=error[:_LONGEST_ERROR], last_error_ms=now_ms)


@dataclass(frozen=True, slots=True)
class LogSize:
    """How much the log holds, its write-ahead log included. An empty log has 0 as ``first_seq`` and ``last_seq``."""

    events: int
    bytes: int
    groups: int
    first_seq: int
    last_seq: int
    wal_bytes: int = 0


class Log(Protocol):
    """What every reader may ask of the log as a whole. Part of the roles below."""

    @property
    def log_id(self) -> str:
        """A random name given when the log was created."""

    def log_time_ms(self) -> int:
        """The log's own time: it advances with the boot clock and ignores changes of the wall clock."""

    def size(self) -> LogSize:
        """How much the log holds."""


class Events(Log, Protocol):
    """The events, in the order in which they were stored."""

    def append(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Appended:
        """Store an event durably, count it and bring its group up to date: `begin`, and wait.

        ``age_ms`` is how long ago the event was observed, by a clock that cannot be set: an event older than the
        group's newest is logged but does not change the group.
        """

    def begin(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> PendingAppend:
        """Start an append without waiting for it. A refusal that is known now is raised now."""

    def writable(self) -> str | None:
        """``None`` if this process's last commit succeeded, else why it failed."""

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        """The events after sequence number ``after``, oldest first, at most ``limit`` (and `READ_LIMIT`)."""

    def recent(self, key: GroupKey, limit: int = 50) -> Sequence[StoredEvent]:
        """The newest events of one group, newest first."""

    def bodies(self, key: GroupKey, limit: int = 50, after: int = 0) -> Sequence[StoredBody]:
        """The newest events of one group after number ``after``, not decoded, newest first; fewer if they are large."""

    def event(self, seq: int) -> StoredEvent | None:
        """One event, if it is still kept and not damaged."""

    def prune(self) -> int:
        """Delete the events above the limits of age and size; return how many."""


class Groups(Log, Protocol):
    """The newest state of every group."""

    def latest(self, after: GroupKey | None = None, limit: int = READ_LIMIT) -> Sequence[GroupState]:
        """A page of the groups that have not expired and are not deleted, ordered by key, after ``after``."""

    def changed(self, after: int, limit: int = READ_LIMIT) -> Sequence[Changed]:
        """A page of the groups whose last event is after number ``after``, expired or not, ordered by that event."""

    def group(self, key: GroupKey) -> GroupState | None:
        """One group, unless it has expired or is deleted."""

    def heard(self) -> Mapping[str, int]:
        """When each cluster's Burrow was last heard by webhook (epoch ms). Never expires."""

    def expire(self) -> int:
        """Mark the groups that fell silent since the last call; return how many."""


class ReporterNotes(Log, Protocol):
    """What each reporter saves for the next worker that leads: its cursor, its state and its notes."""

    def cursor(self, reporter: str) -> Cursor | None:
        """A reporter's cursor in this log; ``None`` if it has none."""

    def save_reporter(self, state: ReporterState) -> None:
        """Keep a reporter's cursor and state."""

    def reporters(self) -> Sequence[ReporterState]:
        """The saved state of every reporter, ordered by name."""

    def recall(self, reporter: str, name: str) -> bytes | None:
        """The value that a reporter saved last under a name."""

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value under a name, in place of the one before."""


class EventLog(Events, Groups, ReporterNotes, Protocol):
    """A store with all three roles, the counters of all workers, the refused bodies, and the lead.

    A reader that needs one role asks for that role alone. One process leads at a time.

    Safe to use from several threads and, where it is a file, from several processes. Every method that writes raises
    `LogUnavailableError` if the storage refuses, `UnconfirmedError` if it does not answer, and `OverloadedError` if its
    turn did not come in time.
    """

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a shared counter. Never blocks and never raises: the increment is in memory until the next commit."""

    def counters(self) -> Sequence[Counter]:
        """Every shared counter, including what this process has not committed yet."""

    def reject(self, reject: Reject) -> None:
        """Keep a refused body. Never blocks and never raises; above the limit the oldest are dropped."""

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        """The newest refused bodies, newest first."""

    def flush(self) -> None:
        """Commit the counters and rejects that wait in memory."""

    def lead(self) -> bool:
        """Whether the caller's process leads. Takes the lead if no process has it."""

    def resign(self) -> None:
        """Give up the lead, if held."""

    def close(self) -> None:
        """Stop writing and release every file."""


class Backlog(NamedTuple):
    """The events that a reporter has not handled yet; ``age_s`` is the oldest one's age, ``None`` if unknown."""

    events: int
    age_s: float | None


def backlog(log: Events, state: ReporterState, size: LogSize) -> Backlog:
    """How far a push reporter is behind. A reporter without a cursor in this log still has all of it to do."""
    done = state.cursor.seq if state.cursor and state.cursor.log_id == log.log_id else 0
    done = max(done, size.first_seq - 1)
    waiting = max(0, size.last_seq - done)
    if not waiting:
        return Backlog(0, 0.0)
    readable = (stored for stored in log.read(done, _PASSED_OVER) if isinstance(stored, StoredEvent))
    oldest = next(readable, None)
    return Backlog(waiting, None if oldest is None else max(0, log.log_time_ms() - oldest.log_time_ms) / 1000)


def reporter_state(log: ReporterNotes, name: str) -> ReporterState:
    """The saved state of a reporter; a first one if none was saved."""
    return next((state for state in log.reporters() if state.name == name), ReporterState(name, None))


def groups(log: Groups, after: GroupKey | None = None) -> Iterator[GroupState]:
    """Every live group of a log after ``after``, read in pages."""
    page = log.latest(after=after)
    while page:
        yield from page
        page = log.latest(after=page[-1].key)
