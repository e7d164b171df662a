"""Keeps the event log in memory: for one worker, for tests, or to write nothing to disk. It ends with the process."""

import heapq
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from karrot import telemetry
from karrot.clock import Clock
from karrot.event import GroupKey, LagEvent
from karrot.eventlog import group_state
from karrot.eventlog.base import (
    READ_LIMIT,
    Appended,
    Changed,
    Counter,
    Cursor,
    Damaged,
    GroupState,
    LogSize,
    Reject,
    ReporterState,
    StoredBody,
    StoredEvent,
)
from karrot.eventlog.log_time import LogTime
from karrot.eventlog.write_buffer import WriteBuffer


class Done(NamedTuple):
    """The `PendingAppend` of an append that is already done."""

    appended: Appended

    def wait(self) -> Appended:
        """The outcome."""
        return self.appended

    def when_done(self, call: Callable[[], object]) -> None:
        """Run ``call`` at once."""
        call()

    def withdraw(self) -> bool:
        """False: the event is stored."""
        return False


class MemoryEventLog:
    """The `EventLog` protocol over dictionaries behind one lock.

    ``retention_ms`` and ``max_bytes`` (of bodies) bound the events, ``max_consumers`` the groups.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        stale_after_ms: int = 300_000,
        retention_ms: int = 86_400_000,
        max_bytes: int = 1 << 30,
        max_consumers: int = 50_000,
    ) -> None:
        self._clock = clock
        self._stale_after_ms = stale_after_ms
        self._retention_ms = retention_ms
        self._max_bytes = max_bytes
        self._max_consumers = max_consumers
        self._log_id = uuid.uuid4().hex
        self._time = LogTime(clock, None)
        self._lock = threading.RLock()
        self._events: dict[int, group_state.Arrival] = {}
        self._bytes = 0
        self._seq = 0
        self._groups: dict[GroupKey, group_state.GroupRow] = {}
        self._heard: dict[str, int] = {}
        self._reporters: dict[str, ReporterState] = {}
        self._notes: dict[tuple[str, str], bytes] = {}
        self._buffer = WriteBuffer()

    @property
    def log_id(self) -> str:
        """A random name, new with every process."""
        return self._log_id

    def append(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Appended:
        """Keep an event and bring its group up to date."""
        with self._lock:
            arrived = group_state.arrival(
                event, body, received_at_ms=self._clock.wall_ms(), log_time_ms=self._time.now(), age_ms=age_ms
            )
            self._seq += 1
            self._events[self._seq] = arrived
            self._bytes += len(body)
            while self._bytes > self._max_bytes and len(self._events) > 1:
                self._drop(next(iter(self._events)))
            if arrived.from_webhook:
                self._heard[event.cluster] = arrived.received_at_ms
            self._buffer.count(telemetry.EVENTS_ACCEPTED.name, 1, {"source": event.source.value})
            return Appended(self._seq, self._track(arrived))

    def begin(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> "Done":
        """Keep an event; there is nothing to wait for."""
        return Done(self.append(event, body, age_ms=age_ms))

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        """The events after ``after``, oldest first."""
        with self._lock:
            seqs = [seq for seq in self._events if seq > after][: min(limit, READ_LIMIT)]
            return [self._stored(seq) for seq in seqs]

    def recent(self, key: GroupKey, limit: int = 50) -> Sequence[StoredEvent]:
        """The newest events of a group, newest first."""
        with self._lock:
            if key not in self._groups:
                return []
            seqs = [seq for seq in reversed(self._events) if self._events[seq].key == key]
            return [self._stored(seq) for seq in seqs[:limit]]

    def bodies(self, key: GroupKey, limit: int = 50, after: int = 0) -> Sequence[StoredBody]:
        """The newest events of a group after ``after``, newest first."""
        return [
            StoredBody(each.seq, each.received_at_ms, each.event.observed_at_ms, each.event.source, each.body)
            for each in self.recent(key, limit)
            if each.seq > after
        ]

    def event(self, seq: int) -> StoredEvent | None:
        """One event, if still kept."""
        with self._lock:
            return self._stored(seq) if seq in self._events else None

    def latest(self, after: GroupKey | None = None, limit: int = READ_LIMIT) -> Sequence[GroupState]:
        """A page of live groups by key."""
        with self._lock:
            now = self._time.now()
            alive = (
                key
                for key, row in self._groups.items()
                if (after is None or key > after) and row.alive(now, self._stale_after_ms)
            )
            page = heapq.nsmallest(min(limit, READ_LIMIT), alive)
            return [group_state.state_of(key, self._groups[key]) for key in page]

    def changed(self, after: int, limit: int = READ_LIMIT) -> Sequence[Changed]:
        """A page of the groups whose last event is after ``after``."""
        with self._lock:
            told = ((row.last_seq, key) for key, row in self._groups.items() if row.last_seq > after)
            page = heapq.nsmallest(min(limit, READ_LIMIT), told)
            return [group_state.changed(key, self._groups[key]) for _, key in page]

    def group(self, key: GroupKey) -> GroupState | None:
        """One live group."""
        with self._lock:
            row = self._groups.get(key)
            if row is None or not row.alive(self._time.now(), self._stale_after_ms):
                return None
            return group_state.state_of(key, row)

    def heard(self) -> Mapping[str, int]:
        """When each cluster was last heard by webhook."""
        with self._lock:
            return dict(self._heard)

    def cursor(self, reporter: str) -> Cursor | None:
        """A reporter's cursor."""
        kept = self._reporters.get(reporter)
        return None if kept is None else kept.cursor

    def save_reporter(self, reporter_state: ReporterState) -> None:
        """Keep a reporter's state."""
        with self._lock:
            self._reporters[reporter_state.name] = reporter_state

    def reporters(self) -> Sequence[ReporterState]:
        """The saved state of every reporter, ordered by name."""
        with self._lock:
            return [self._reporters[name] for name in sorted(self._reporters)]

    def recall(self, reporter: str, name: str) -> bytes | None:
        """The value that a reporter saved last under a name."""
        with self._lock:
            return self._notes.get((reporter, name))

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value."""
        with self._lock:
            self._notes[reporter, name] = value

    def lead(self) -> bool:
        """The only process leads."""
        return True

    def resign(self) -> None:
        """Nothing to do: there is no other process."""

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._buffer.count(name, by, labels)

    def counters(self) -> Sequence[Counter]:
        """Every counter."""
        return self._buffer.counters()

    def reject(self, reject: Reject) -> None:
        """Keep a refused body."""
        self._buffer.reject(reject)

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        """The newest refused bodies."""
        return self._buffer.rejects()[::-1][:limit]

    def expire(self) -> int:
        """Mark and count the groups that fell silent."""
        with self._lock:
            now = self._time.now()
            silent = [
                key
                for key, row in self._groups.items()
                if not row.expired and not row.gone and not row.alive(now, self._stale_after_ms)
            ]
            for key in silent:
                self._groups[key] = self._groups[key]._replace(expired=True)
            return len(silent)

    def prune(self) -> int:
        """Delete what is older than the retention."""
        with self._lock:
            oldest = self._time.now() - self._retention_ms
            old = [seq for seq, arrived in self._events.items() if arrived.log_time_ms < oldest]
            for seq in old:
                self._drop(seq)
            return len(old)

    def size(self) -> LogSize:
        """How much the log holds."""
        with self._lock:
            first = next(iter(self._events), 0)
            return LogSize(len(self._events), self._bytes, len(self._groups), first, self._seq if first else 0)

    def log_time_ms(self) -> int:
        """The log's own time."""
        return self._time.now()

    def writable(self) -> str | None:
        """Memory always accepts writes."""
        return None

    def flush(self) -> None:
        """Nothing to do: nothing waits."""

    def close(self) -> None:
        """Nothing to do: no file is open."""

    def _track(self, arrived: group_state.Arrival) -> bool:
        row = self._groups.get(arrived.key)
        if row is None and len(self._groups) >= self._max_consumers and not self._evict():
            return False
        self._groups[arrived.key] = group_state.after(row, self._seq, arrived)
        return True

    def _evict(self) -> bool:
        silent = [key for key, row in self._groups.items() if row.expired or row.gone]
        if not silent:
            return False
        del self._groups[min(silent, key=lambda key: self._groups[key].log_time_ms)]
        return True

    def _drop(self, seq: int) -> None:
        self._bytes -= len(self._events.pop(seq).body)
        self._buffer.count(telemetry.LOG_PRUNED.name, 1, {})

    def _stored(self, seq: int) -> StoredEvent:
        arrived = self._events[seq]
        return StoredEvent(self._log_id, seq, arrived.received_at_ms, arrived.log_time_ms, arrived.body, arrived.event)
