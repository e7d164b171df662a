"""Defines the event log, and implements what its stores have in common: reads, and the start of writes."""

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from karrot.clock import Clock
from karrot.event import TEST_CLUSTERS, GroupKey, LagEvent
from karrot.eventlog import rows
from karrot.eventlog.base import (
    READ_LIMIT,
    Appended,
    Counter,
    Cursor,
    Damaged,
    DatabaseStatus,
    EventSummary,
    GroupState,
    Limits,
    Listed,
    LogSize,
    LogUnavailableError,
    OverloadedError,
    Reject,
    ReporterState,
    StoredEvent,
    StoredSummary,
)
from karrot.eventlog.next_group_state import Arrival, combine, places, summarize
from karrot.eventlog.transaction_rules import TOUCHED_MS, Committer
from karrot.eventlog.writer import InlineWriter, Job, WriteBuffer, Writer
from karrot.telemetry import Metric

T = TypeVar("T")
NEARLY_FULL = 0.9
"""If a log is too large, it is reduced to this share of its limit."""

READ_BYTES = 8 << 20
"""The bodies of one read have at most this many bytes together, unless there is only one body."""

_UNREAD_BYTES = 1 << 20
_STEP = 256
"""Skipping a row's body costs this many times less than reading and parsing the body."""


class EventLog(ABC):
    """The event log: the events in the order in which they were stored, and the groups' states.

    Several threads may use a log. Several processes may use a log in a file. Every method that writes raises
    `LogUnavailableError` if the storage refuses the write (`UnstorableError` if it refuses only this write),
    `UnconfirmedError` if the storage does not answer, and `OverloadedError` if the write waited too long in the queue.
    Every method that reads raises `LogUnavailableError` if the storage cannot be read.
    """

    _writer: Writer | InlineWriter
    _committer: Committer
    _event_columns: str
    _group_columns: str
    _events_table = "events"

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._buffer = WriteBuffer()
        self._live = LiveGroups(self, stale_after_ms=limits.stale_after_ms, source=self._source)

    # --- what each store implements ---

    @property
    @abstractmethod
    def log_id(self) -> str:
        """The random name of the log in the ids of new events, at this process's last commit."""

    @abstractmethod
    def log_time_ms(self) -> int:
        """The log's own time. It advances with the boot clock, and ignores changes of the wall clock."""

    @abstractmethod
    def size(self) -> LogSize:
        """The size of the log."""

    @abstractmethod
    def prune(self) -> int:
        """Delete events and log-end histories beyond the limits of age and size. Return the number of events."""

    @abstractmethod
    def close(self) -> None:
        """Commit the waiting writes, then release every file and connection."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """Lend a connection for one short read. Raises `LogUnavailableError`.

        The connection runs statements with ``?`` for each parameter. A cursor has ``fetchone`` and ``fetchall``.
        """

    @abstractmethod
    def _page(self, connection: Any, after: int, limit: int) -> Iterable[rows.Row]:
        """Return at most ``limit`` rows of events after ``after``, with at most about `READ_BYTES` of bodies."""

    @abstractmethod
    def _key(self, key: GroupKey) -> tuple[Any, Any]:
        """A group's key as the parameters of a statement."""

    # --- several processes and machines: as for one process that alone uses the log ---

    def writable(self) -> str | None:
        """Why the last commit of this process failed, or took longer than `STALLED_S`; ``None`` if it succeeded."""
        return self._committer.failure or self._writer.stalled()

    def _has_idle_work(self) -> bool:
        """Whether a commit without jobs is useful: for counters, or to see whether commits succeed again."""
        return bool(self._buffer) or self._committer.failure is not None

    def memory_age_ms(self) -> int | None:
        """The age of the groups in memory, which replace a log that cannot be read. ``None`` if the log can be read."""
        return None

    def database(self) -> DatabaseStatus | None:
        """The database server of the log, as last known. ``None`` if the log needs no server."""
        return None

    @property
    def replica(self) -> str | None:
        """The name of this machine, if several can share the log. ``None`` if only one machine can use the log."""
        return None

    def lead(self) -> bool:
        """Take the lead if no process has it. Return whether this process leads."""
        return True

    def leads(self) -> bool:
        """Whether this process leads now. A process can lose the lead if several machines share the log."""
        return True

    def resign(self) -> None:  # noqa: B027 - a single process keeps the lead
        """Give up the lead, if this process has it."""

    def leader(self) -> str | None:
        """The name of the machine whose process leads. ``None`` if no process leads, or if only one machine can."""
        return None

    # --- events ---

    def append(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Appended:
        """Store an event durably, count it and update its group. Calls `begin` and waits for the outcome.

        ``age_ms`` is how long ago the event was observed, by the boot clock. An event that is older than the group's
        newest event is stored, but does not change the group.
        """
        return self.begin(event, body, age_ms=age_ms).wait()

    def begin(self, event: LagEvent, body: bytes, *, age_ms: int = 0) -> Job[Appended]:
        """Start an append without waiting for it. Raises immediately if the log knows that a commit would fail."""
        key, log_ms = GroupKey(event.cluster, event.consumer), self.log_time_ms()
        summary = summarize(event, self._clock.wall_ms())
        stale_ms = self._limits.stale_after_ms
        return self._writer.begin(Arrival(key, event, body, log_ms, log_ms - max(0, age_ms), summary, stale_ms))

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent | Damaged]:
        """At most ``limit`` and at most `READ_LIMIT` events after the sequence number ``after``, oldest first."""
        with self._reading() as connection:
            found = list(self._page(connection, after, min(limit, READ_LIMIT)))
        return list(map(rows.stored_event, found))

    def recent(self, keys: Sequence[GroupKey], limit: int = 50) -> Sequence[Sequence[StoredSummary]]:
        """The newest events of each group, newest first; fewer events if their bodies are large."""
        most_bytes = min(_UNREAD_BYTES, READ_BYTES // max(1, len(keys)))
        chains = self._chains(keys, limit, most_bytes=most_bytes, whole=False)
        return [[each for each in chain if isinstance(each, StoredSummary)] for chain in chains]

    def since(self, key: GroupKey, received_ms: int, most: int) -> Sequence[StoredSummary]:
        """The newest events of a group back to a time of receipt, newest first, and at least `READ_LIMIT` if stored."""
        found, start = list[StoredSummary](), 0
        while len(found) < most and (not found or found[-1].summary.received_at_ms >= received_ms):
            chain = self._chains([key], READ_LIMIT, most_bytes=_UNREAD_BYTES, start=start, whole=False)[0][start > 0 :]
            if not chain:
                break
            found += [each for each in chain if isinstance(each, StoredSummary)]
            start = chain[-1].seq
        return found

    def event(self, seq: int) -> StoredEvent | None:
        """One event; ``None`` if the event is not stored any more, or damaged."""
        sql = f"SELECT {self._event_columns} FROM {self._events_table} WHERE seq = ?"
        with self._reading() as connection:
            row = connection.execute(sql, (seq,)).fetchone()
        found = None if row is None else rows.stored_event(row)
        return found if isinstance(found, StoredEvent) else None

    def summaries(self, seqs: Sequence[int]) -> Mapping[int, EventSummary]:
        """The summaries of some events, without those that are not stored any more, or damaged."""
        found: dict[int, EventSummary] = {}
        fields = ", ".join(rows.EVENT_FIELDS[:-1])
        for start in range(0, len(seqs), READ_LIMIT):
            some = seqs[start : start + READ_LIMIT]
            sql = (
                f"WITH asked AS (SELECT {fields}, CASE WHEN summary IS NULL THEN body END AS body "
                f"FROM {self._events_table} WHERE seq IN ({', '.join('?' * len(some))})) "
                f"SELECT {self._event_columns} FROM asked"
            )
            with self._reading() as connection:
                read = list(map(rows.stored_summary, connection.execute(sql, some).fetchall()))
            found |= {each.seq: each.summary for each in read if isinstance(each, StoredSummary)}
        return found

    def changed(self, after: int) -> Iterator[GroupState]:
        """Every group whose last event is after ``after``, sorted by that event, read page by page. Has gone groups.

        A group that changes during the iteration can come again. A group whose row is damaged is left out until its
        next event.
        """
        sql = f"SELECT {self._group_columns} FROM groups WHERE last_seq > ? ORDER BY last_seq LIMIT {READ_LIMIT}"
        is_more = True
        while is_more:
            with self._reading() as connection:
                found = connection.execute(sql, (after,)).fetchall()
            yield from filter(None, map(rows.group_of, found))
            if is_more := len(found) == READ_LIMIT:
                after = found[-1][rows.GROUP_FIELDS.index("last_seq")]

    def live(self) -> Sequence[GroupState]:
        """Every live group now, ordered by key."""
        return self._live.read()

    def vanished(self) -> Sequence[GroupKey]:
        """Every group that has expired or was deleted, until the log forgets it to make room for another."""
        with self._reading() as connection:
            found = connection.execute("SELECT cluster, consumer FROM groups WHERE expired OR gone").fetchall()
        return [GroupKey(rows.text_of(cluster), rows.text_of(consumer)) for cluster, consumer in found]

    def group(self, key: GroupKey) -> GroupState | None:
        """One group. ``None`` if the group has expired or is deleted."""
        sql = (
            f"SELECT {self._group_columns} FROM groups "
            "WHERE cluster = ? AND consumer = ? AND log_time_ms >= ? AND NOT gone"
        )
        with self._reading() as connection:
            row = connection.execute(sql, (*self._key(key), self._oldest_live())).fetchone()
        return None if row is None else rows.group_of(row)

    def listed(self, state: GroupState) -> Listed | None:
        """A group's known partitions. ``None`` if the newest event is not stored any more, or damaged."""
        seq, second = state.summary.listed_seq, state.second_opinion(self.log_time_ms())
        complete = self.event(seq) if seq else None
        if complete is not None and complete.log_time_ms < self._oldest_live():
            complete = None  # without a list, do not read the later events: they may be many
        found = (
            self._chains([state.key], READ_LIMIT, after=seq, most_bytes=_UNREAD_BYTES, whole=True) if complete else [[]]
        )
        later = [each for each in found[0] if isinstance(each, StoredEvent)]
        newest = next((each for each in (complete, *later) if each and each.seq == state.seq), None)
        newest = newest or self.event(state.seq)
        if newest is None:
            return None
        partitions = combine(newest, complete, later) if complete else places(newest.event).values()
        return Listed(newest, complete, self.event(second.seq) if second else None, tuple(partitions))

    def heard(self) -> Mapping[str, int]:
        """The time of each cluster's last webhook, by `wall_ms_at`. Only a posted deletion removes a cluster."""
        return {name: self.wall_ms_at(at) for name, at in self._heard().items() if at and name not in TEST_CLUSTERS}

    def _chains(
        self, keys: Sequence[GroupKey], limit: int, *, most_bytes: int, after: int = 0, start: int = 0, whole: bool
    ) -> list[list[StoredSummary | Damaged]]:
        """Read each group's newest events with a number above ``after``, newest first, up to ``most_bytes`` per group.

        With ``start``, read that event of a single group and the events before it.
        Without ``whole``, a body is read only if its row has no summary. Skipping a body costs less than reading the
        body, but not nothing.
        """
        chains: list[list[StoredSummary | Damaged]] = [[] for _ in keys]
        if limit < 1 or not keys:
            return chains
        events, decode = self._events_table, rows.stored_event if whole else rows.stored_summary
        size = "length(e.body)" if whole else f"coalesce(length(e.summary) + length(e.body) / {_STEP}, length(e.body))"
        body = "e.body" if whole else "CASE WHEN e.summary IS NULL THEN e.body END AS body"
        fields = ", ".join(("e.previous", *(f"e.{name}" for name in rows.EVENT_FIELDS[:-1]), body))
        sql = (
            f"WITH RECURSIVE chain AS (SELECT {fields}, column1 AS number, 1 AS place, {size} AS bytes "
            f"FROM (VALUES {', '.join(f'({number}, ?, ?)' for number in range(len(keys)))}) AS asked "
            f"JOIN groups g ON g.cluster = column2 AND g.consumer = column3 JOIN {events} e "
            f"ON e.seq = coalesce(nullif(CAST(? AS bigint), 0), g.last_seq) "
            f"WHERE e.seq > ? UNION ALL SELECT {fields}, number, place + 1, bytes + {size} "
            f"FROM chain c JOIN {events} e ON e.seq = c.previous WHERE place < ? AND bytes < ? AND e.seq > ?) "
            f"SELECT number, {self._event_columns} FROM chain ORDER BY seq DESC"
        )
        asked = (part for key in keys for part in self._key(key))
        with self._reading() as connection:
            parameters = (*asked, start, after, min(limit, READ_LIMIT), most_bytes, after)
            found = connection.execute(sql, parameters).fetchall()
        for number, *row in found:
            chains[number].append(decode(row))
        return chains

    def _heard(self) -> Mapping[str, int]:
        """The log time of each cluster's last webhook, or 0 if the cluster was forgotten since."""
        with self._reading() as connection:
            found = connection.execute("SELECT cluster, at_ms FROM heard").fetchall()
        return {rows.text_of(cluster): at_ms for cluster, at_ms in found}

    def wall_ms_at(self, log_ms: int) -> int:
        """Convert a log time to a time of this machine's wall clock, as set now. The result is never in the future."""
        return self._clock.wall_ms() - max(0, self.log_time_ms() - log_ms)

    def cursor(self, reporter: str) -> Cursor | None:
        """A reporter's cursor in this log; ``None`` without a cursor."""
        sql = "SELECT log_id, seq FROM reporters WHERE name = ? AND log_id = (SELECT log_id FROM log)"
        with self._reading() as connection:
            row = connection.execute(sql, (reporter,)).fetchone()
        return None if row is None else Cursor(*row)

    def save_reporter(self, state: ReporterState) -> None:
        """Save a reporter's cursor and state, unless the cursor has another log id: the saved cursor then counts."""
        self._lead_writes(lambda transaction: transaction.save_reporter(state))

    def compare(self, given: Mapping[str, int]) -> None:
        """Count the events that the log lost, by the newest number that a reader has seen with each log id."""
        self._lead_writes(lambda transaction: transaction.compare(given))

    def begin_id(self) -> None:
        """Give new events another log id, from any process: other events may have had their numbers."""
        self._writer.begin(lambda transaction: transaction.begin_id()).wait()

    def reporters(self) -> Sequence[ReporterState]:
        """The saved state of every reporter, ordered by name."""
        with self._reading() as connection:
            found = connection.execute("SELECT name, log_id, seq, state FROM reporters").fetchall()
        return [rows.reporter_of(row) for row in sorted(found)]

    def recall(self, reporter: str, name: str) -> bytes | None:
        """The value that a reporter saved under a name; ``None`` without a saved value."""
        with self._reading() as connection:
            note = "SELECT value FROM notes WHERE reporter = ? AND name = ?"
            found = connection.execute(note, (reporter, name)).fetchone()
        return None if found is None else found[0]

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value under a name, in place of the previous value."""
        self._lead_writes(lambda transaction: transaction.remember(reporter, name, value))

    def revise(self, reporter: str, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Save ``change(value)`` in place of a value, from any process. ``change`` may run twice and must not raise."""
        self._writer.begin(lambda transaction: transaction.revise(reporter, name, change)).wait()

    def remember_soon(self, reporter: str, name: str, value: bytes) -> None:
        """`remember` with the next commit, in any process and without waiting. A failed commit loses the value."""
        self._writer.begin(lambda transaction: transaction.remember(reporter, name, value))

    def count(self, metric: Metric | str, by: float = 1, **labels: str) -> None:
        """Add to a shared counter. Never blocks and never raises: the increment is in memory until the next commit.

        A reporter of another package can pass the metric's name as ``metric``.
        """
        self._buffer.count(metric if isinstance(metric, str) else metric.name, by, labels)

    def counters(self) -> Sequence[Counter]:
        """Every shared counter, including increments of this process that are not committed yet."""
        with self._reading() as connection:
            kept = connection.execute("SELECT name, labels, value FROM counters").fetchall()
        stored = {(name, rows.labels_of(labels)): value for name, labels, value in kept}
        return self._buffer.counters(stored)

    def reject(self, reject: Reject) -> None:
        """Keep a refused body. Never blocks and never raises. Beyond the limit, the oldest bodies are dropped."""
        self._buffer.reject(reject)

    def rejects(self, limit: int = 50) -> Sequence[Reject]:
        """The newest refused bodies, newest first."""
        waiting = self._buffer.rejects()[::-1][:limit]
        sql = "SELECT received_at_ms, code, detail, source, body FROM rejects ORDER BY id DESC LIMIT ?"
        with self._reading() as connection:
            kept = connection.execute(sql, (limit - len(waiting),)).fetchall()
        return [*waiting, *map(rows.reject_of, kept)]

    def expire(self) -> int:
        """Mark the groups that became silent since the last call. Return their number."""
        before_ms = self._oldest_live()
        sql = "SELECT 1 FROM groups WHERE NOT expired AND NOT gone AND log_time_ms < ? LIMIT 1"
        with self._reading() as connection:
            if connection.execute(sql, (before_ms,)).fetchone() is None:
                return 0
        return self._lead_writes(lambda transaction: int(transaction.expire(before_ms)))

    def flush(self) -> None:
        """Commit the counters and rejects that are still in memory."""
        self._writer.begin(lambda _transaction: None).wait()

    def _forget_log_ends(self, before_ms: int) -> None:
        """Delete the log-end histories beyond the limits of age and size, some hundred in each transaction."""
        while self._lead_writes(lambda transaction: transaction.forget_log_ends(before_ms - TOUCHED_MS)):
            pass
        enough, some = self._limits.most_log_end_bytes, 1
        while some:
            with self._reading() as connection:
                is_full = connection.execute("SELECT log_end_bytes FROM log").fetchone()[0] > enough
            some = self._lead_writes(lambda transaction: transaction.forget_log_ends()) if is_full else 0
            # New histories never make the table too large, so no history in use is dropped repeatedly.
            enough = int(self._limits.most_log_end_bytes * NEARLY_FULL)

    def _source(self) -> object:
        return self.log_id

    def _lead_writes(self, work: Callable[[Any], T]) -> T:
        return self._writer.begin(work).wait()

    def _oldest_live(self) -> int:
        return self.log_time_ms() - self._limits.stale_after_ms


class LiveGroups:
    """The live groups of a log. One object serves all threads of a process, and each group is decoded once per change.

    A group whose row was damaged after the last read stays as it was read. All groups are read again when ``source``
    changes, for a new log or for a database that may lack its newest events.
    """

    def __init__(self, log: EventLog, *, stale_after_ms: int, source: Callable[[], object]) -> None:
        self._log = log
        self._stale_after_ms = stale_after_ms
        self._source = source
        self._lock = threading.Lock()
        self._read_source: object = None
        self._seen_seq = 0
        self._oldest_ms = sys.maxsize
        self._states: dict[GroupKey, GroupState] = {}
        self._keys: list[GroupKey] | None = None
        self._read_at_ms = 0

    def read(self) -> Sequence[GroupState]:
        """What `EventLog.live` returns. A changed group is decoded once, and other readers wait for it."""
        with self._lock:
            if self._read_source is not None:
                self._take(self._log.changed(self._seen_seq))
            while self._read_source != (source := self._source()):  # reading can notice that the source has changed
                found = list(self._log.changed(0))  # if the log cannot be read to its end, the known groups stay
                self._seen_seq, self._states, self._keys, self._oldest_ms = 0, {}, None, sys.maxsize
                self._take(found)
                self._read_source = source
            self._read_at_ms = self._log.log_time_ms()
            return self._live()

    def last_known(self) -> Sequence[GroupState]:
        """The live groups of the last read. Raises `LogUnavailableError` before the first read."""
        with self._lock:
            if self._read_source is None:
                raise LogUnavailableError("the groups were not read yet")
            return self._live()

    def age_ms(self) -> int:
        """The milliseconds since the last read."""
        return self._log.log_time_ms() - self._read_at_ms

    def _take(self, changes: Iterable[GroupState]) -> None:
        for state in changes:
            self._seen_seq = state.last_seq
            if state.gone == (state.key in self._states):
                self._keys = None
            if state.gone:
                self._states.pop(state.key, None)
            else:
                self._states[state.key] = state
                self._oldest_ms = min(self._oldest_ms, state.log_time_ms)

    def _live(self) -> Sequence[GroupState]:
        """The groups with a recent event, ordered by key. Check all groups only when the oldest has expired."""
        before_ms = self._log.log_time_ms() - self._stale_after_ms
        if self._oldest_ms < before_ms:
            self._states = {key: state for key, state in self._states.items() if state.log_time_ms >= before_ms}
            self._oldest_ms = min((state.log_time_ms for state in self._states.values()), default=sys.maxsize)
            self._keys = None
        if self._keys is None:
            self._keys = sorted(self._states)
        return [self._states[key] for key in self._keys]


def reporter_state(log: EventLog, name: str) -> ReporterState:
    """A reporter's saved state, or a new idle state."""
    cursor = log.cursor(name)  # from the log: a state from memory may have an older cursor
    found = next((state for state in log.reporters() if state.name == name), ReporterState(name, None))
    return replace(found, cursor=cursor)


def save_outcome(log: EventLog, name: str, clock: Clock, failed: str | None) -> None:
    """Save whether the last run of a reporter or a duty succeeded, for health checks and pages. Ignores log errors."""
    with suppress(LogUnavailableError, OverloadedError):
        kept, now_ms = reporter_state(log, name), clock.wall_ms()
        log.save_reporter(kept.well(now_ms) if failed is None else kept.failing(failed, now_ms))
