"""Applies the rules of the event log within one transaction, and writes its rows together at the end.

An event changes its group, and the log-end histories of its partitions. Each store runs the statements.
"""

import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import structlog

from karrot import telemetry
from karrot.event import ClusterPartition, GroupKey, LagAge, LogEnd, Source, TopicPartition
from karrot.eventlog import rows
from karrot.eventlog.base import Appended, GroupState, Limits, LogUnavailableError, ReporterState, UnstorableError
from karrot.eventlog.log_end_history import LogEndHistory, lag_age, recorded_partitions
from karrot.eventlog.next_group_state import Arrival, after, with_age
from karrot.eventlog.writer import KEPT_REJECTS, CounterKey, Job, PendingWrites, Take, WriteBuffer

MOST_CLUSTERS = 1000
"""The most clusters whose last webhook is remembered. Beyond this number, the oldest are dropped."""

FORGET_GROUPS = (
    "DELETE FROM groups WHERE (cluster, consumer) IN "
    "(SELECT cluster, consumer FROM groups WHERE expired OR gone ORDER BY log_time_ms LIMIT 100) "
    "RETURNING cluster, consumer"
)
"""Deletes some silent or deleted groups, to make room for new groups."""

_EXPIRE_GROUPS = (
    "UPDATE groups SET expired = true WHERE NOT expired AND NOT gone AND log_time_ms < ? RETURNING cluster, consumer"
)

_log = structlog.get_logger(__name__)
_READ_AGAIN_MS = 5_000
"""After a read, a process uses the history for this time. Every history is written when it is read."""

_IN_MEMORY = 500
TOUCHED_MS = 600_000
"""The resolution of ``touched_ms``, because an index on an exact time would cost one page per write."""

_ROW_BYTES = 64
LOG_END_BYTES = f"length(samples) + 2 * (octet_length(cluster) + octet_length(topic)) + {_ROW_BYTES}"
"""The bytes that a history takes in the table and in both indexes: the names are stored twice."""

_FORGET_LOG_ENDS = (
    "DELETE FROM log_ends WHERE (cluster, topic, partition) IN "
    "(SELECT cluster, topic, partition FROM log_ends {which}) "
    f"RETURNING {LOG_END_BYTES}"
)
_FORGET_CLUSTERS = (
    f"DELETE FROM heard WHERE cluster NOT IN (SELECT cluster FROM heard ORDER BY at_ms DESC LIMIT {MOST_CLUSTERS})"
)
_FORGET_REJECTS = f"DELETE FROM rejects WHERE id <= (SELECT max(id) FROM rejects) - {KEPT_REJECTS}"


class _Read(NamedTuple):
    at_ms: int
    history: LogEndHistory


class LogEndHistories:
    """The histories in the table ``log_ends``. One object serves a process and remembers what it has read lately.

    A history covers the retention. While all histories together have too many bytes, the history of a further partition
    is not stored.
    """

    def __init__(self, limits: Limits) -> None:
        self._max_bytes = limits.most_log_end_bytes
        self._retention_ms = limits.retention_ms
        self._lately: dict[ClusterPartition, _Read] = {}

    def forget(self) -> None:
        """Forget the read histories, after a rollback or after the file was replaced."""
        self._lately.clear()

    def needed(self, arrived: Arrival) -> Iterator[ClusterPartition]:
        """The partitions whose stored histories `record` would read for an event."""
        places = recorded_partitions(arrived.event, arrived.observed_log_ms, partial(self._read_lately, arrived))
        return (ClusterPartition(arrived.key.cluster, *place) for place in places)

    def record(self, transaction: "Transaction", arrived: Arrival) -> LagAge | None:
        """Add an event's samples to its partitions' histories, and compute the group's lag age from these."""

        def record(place: TopicPartition, ends: Sequence[LogEnd]) -> LogEndHistory:
            key = ClusterPartition(arrived.key.cluster, *place)
            samples = transaction.find_log_end(key)
            known = LogEndHistory.unpack(samples) if samples else LogEndHistory()
            history = LogEndHistory() if known is None else known
            if known is None:
                transaction.add(telemetry.LOG_ENDS_DROPPED, 1, reason="damaged")
            if history.record(ends):
                transaction.add(telemetry.LOG_ENDS_DROPPED, 1, reason="contradicted")
            history.forget_before(arrived.log_time_ms - self._retention_ms)
            self._remember(key, _Read(arrived.log_time_ms, history))
            packed = history.pack()
            grown = len(packed) - len(samples or b"")
            if samples is None:
                grown += 2 * (len(key.cluster.encode()) + len(key.topic.encode())) + _ROW_BYTES
                if transaction.log_end_bytes + grown > self._max_bytes:
                    transaction.add(telemetry.LOG_ENDS_DROPPED, 1, reason="full")
                    return history
            transaction.save_log_end(key, arrived.log_time_ms // TOUCHED_MS * TOUCHED_MS, packed)
            transaction.log_end_bytes += grown
            return history

        return lag_age(arrived.event, arrived.observed_log_ms, partial(self._read_lately, arrived), record)

    def _read_lately(self, arrived: Arrival, place: TopicPartition, now: LogEnd) -> LogEndHistory | None:
        read = self._lately.get(ClusterPartition(arrived.key.cluster, *place))
        if read is None or not 0 <= arrived.log_time_ms - read.at_ms < _READ_AGAIN_MS:
            return None
        return read.history if read.history.agrees_with(now) else None

    def _remember(self, key: ClusterPartition, read: _Read) -> None:
        self._lately.pop(key, None)  # so that the first key is always the one that was read longest ago
        self._lately[key] = read
        if len(self._lately) > _IN_MEMORY:
            del self._lately[next(iter(self._lately))]


class Transaction(ABC):
    """An open transaction. It collects rows, and `settle` writes them. Create it after BEGIN.

    ``log_id`` is the id of new events. ``last_seq``, ``groups`` and ``log_end_bytes`` are the log's own counts, and
    change with the rows. A store can read rows before the jobs need them, into ``known_groups`` and
    ``known_log_ends``; ``None`` if there is no such row.
    """

    log_id: str
    _group_columns: str
    _events_table = "events"
    _find_note = "SELECT value FROM notes WHERE reporter = ? AND name = ?"

    def __init__(
        self, limits: Limits, log_end_histories: LogEndHistories, last_seq: int, groups: int, log_end_bytes: int
    ) -> None:
        self.last_seq = last_seq
        self.groups = groups
        self.log_end_bytes = log_end_bytes
        self.known_groups: dict[GroupKey, GroupState | rows.Row | None] = {}
        self.known_log_ends: dict[ClusterPartition, bytes | None] = {}
        self.heard: dict[str, int] = {}
        self.counts = Counter[CounterKey]()
        self._log_end_histories = log_end_histories
        self._max_consumers = limits.max_consumers
        self._nothing_to_evict = False
        self._events: list[rows.Row] = []
        self._groups: dict[GroupKey, GroupState] = {}
        self._log_ends: dict[ClusterPartition, rows.Row] = {}
        self._reporters: dict[str, rows.Row] = {}
        self._notes: dict[tuple[str, str], rows.Row] = {}

    def append(self, arrived: Arrival) -> Appended:
        """Store an event and its log ends, and update its group unless there are too many groups."""
        if arrived.event.source is Source.WEBHOOK:
            self.heard[arrived.key.cluster] = arrived.log_time_ms if arrived.event.from_burrow else 0
        known = self._find_group(arrived.key)
        row = known if known is None or isinstance(known, GroupState) else rows.group_of(known)
        if known is not None and row is None:  # the row is damaged, and this event replaces it
            self.add(telemetry.LOG_DAMAGED, 1)
        age = self._log_end_histories.record(self, arrived)
        arrived = arrived if age is None else with_age(arrived, age)
        self._events.append(rows.event_row(self.last_seq + 1, arrived, None if row is None else row.last_seq))
        self.last_seq += 1
        self.add(telemetry.EVENTS_ACCEPTED, 1, source=arrived.event.source.value)
        if known is None:
            if self.groups >= self._max_consumers and not self._evict():
                return Appended(self.last_seq, tracked=False)
            self.groups += 1
        state = after(row, self.last_seq, arrived)
        self._groups[state.key] = self.known_groups[state.key] = state
        return Appended(self.last_seq, tracked=True)

    def begin_id(self) -> None:
        """Give new events another log id: other events may have had their numbers. Stored events keep their id."""
        self.log_id = uuid.uuid4().hex
        self._execute(f"DELETE FROM earlier_ids WHERE last_seq < (SELECT min(seq) FROM {self._events_table})")
        # Without events since the previous change, the row of the id before it stays. The id has the row 0, which is no
        # event's row, because the log can have lost all events with the id.
        self._execute(
            "INSERT INTO earlier_ids SELECT CASE WHEN EXISTS (SELECT 1 FROM earlier_ids WHERE last_seq = ?) THEN 0 "
            "ELSE CAST(? AS bigint) END, log_id, ? FROM log WHERE true "
            "ON CONFLICT (last_seq) DO UPDATE SET log_id = excluded.log_id, given_seq = excluded.given_seq",
            *(self.last_seq, self.last_seq, self.last_seq),
        )
        self._execute(f"UPDATE reporters SET log_id = '{self.log_id}' WHERE log_id = (SELECT log_id FROM log)")
        self._execute(f"UPDATE log SET log_id = '{self.log_id}'")

    def compare(self, given: Mapping[str, int]) -> bool:
        """Count the events that the log lost, by the newest number that a reader has seen with each log id.

        If these events had the present id, begin another one. Return whether the log knows one of the ids.
        """
        known = {self.log_id}
        if given.get(self.log_id, 0) > self.last_seq:
            self.begin_id()
        for last_seq, log_id, given_seq in list(self._execute("SELECT last_seq, log_id, given_seq FROM earlier_ids")):
            known.add(log_id)
            if (lost := given.get(log_id, 0) - given_seq) > 0:
                self._execute("UPDATE earlier_ids SET given_seq = ? WHERE last_seq = ?", given_seq + lost, last_seq)
                self.add(telemetry.LOG_LOST_EVENTS, lost)
                _log.error(
                    "the event log lost its newest events; Karrot had answered them with 202",
                    code="log_rewound",
                    events=lost,
                    last_event=f"{log_id}-{last_seq}",
                )
        return not known.isdisjoint(given)

    def save_reporter(self, state: ReporterState) -> None:
        """Save a reporter's cursor and state, unless the cursor has another log id: the saved cursor then counts."""
        if state.cursor is None or state.cursor.log_id == self.log_id:
            self._reporters[state.name] = rows.reporter_row(state)

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value."""
        self._notes[reporter, name] = (reporter, name, value)

    def revise(self, reporter: str, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Save ``change(value)`` in place of a reporter's value."""
        saved = self._notes.get((reporter, name)) or next(iter(self._execute(self._find_note, reporter, name)), (None,))
        self.remember(reporter, name, change(saved[-1]))

    def expire(self, before_ms: int) -> int:
        """Mark the groups that were last observed before ``before_ms``. Returns how many."""
        return self._change_groups(_EXPIRE_GROUPS, before_ms)

    def forget_log_ends(self, before_ms: int | None = None) -> int:
        """Delete up to 500 log-end histories without a sample since ``before_ms``. Returns how many.

        Without ``before_ms``, delete and count the 100 histories that have had no new sample for the longest time.
        """
        self._write_log_ends()
        self.known_log_ends.clear()
        which = "ORDER BY touched_ms LIMIT 100" if before_ms is None else "WHERE touched_ms < ? LIMIT 500"
        asked = () if before_ms is None else (before_ms,)
        sizes = [int(size) for (size,) in self._execute(_FORGET_LOG_ENDS.format(which=which), *asked)]
        self.log_end_bytes -= sum(sizes)
        if before_ms is None:
            self.add(telemetry.LOG_ENDS_DROPPED, len(sizes), reason="full")
        return len(sizes)

    def add(self, metric: telemetry.Metric, by: int, **labels: str) -> None:
        """Add to a counter in this transaction, so that the counter always matches the rows that it counts."""
        self.counts[metric.name, tuple(sorted(labels.items()))] += by

    def find_log_end(self, key: ClusterPartition) -> bytes | None:
        """Return the packed log-end history of a partition."""
        if key not in self.known_log_ends:
            sql = "SELECT samples FROM log_ends WHERE cluster = ? AND topic = ? AND partition = ?"
            found = next(iter(self._execute(sql, *key)), None)
            self.known_log_ends[key] = None if found is None else found[0]
        return self.known_log_ends[key]

    def save_log_end(self, key: ClusterPartition, touched_ms: int, samples: bytes) -> None:
        self._log_ends[key] = (*key, touched_ms, samples)
        self.known_log_ends[key] = samples

    def settle(self, pending: PendingWrites) -> None:
        """Write the collected rows, and what every commit includes: counters, rejects, and when clusters were heard."""
        counts = Counter[CounterKey](pending.counts)
        counts.update(self.counts)
        self._insert(rows.EVENTS, self._events)
        self._write_groups()
        self._write_log_ends()
        self._insert(rows.REPORTERS, self._reporters.values())
        self._insert(rows.NOTES, self._notes.values())
        self._insert(rows.COUNTERS, [rows.counter_row(*key, value) for key, value in counts.items()])
        self._insert(rows.REJECTS, list(map(rows.reject_row, pending.rejects)))
        if pending.rejects:
            self._execute(_FORGET_REJECTS)
        self._insert(rows.HEARD, self.heard.items())
        if self.heard:
            self._execute(_FORGET_CLUSTERS)

    @abstractmethod
    def _insert(self, table: rows.Table, some: Collection[rows.Row]) -> None:
        """Insert rows into a table, or replace those with the same key. Do nothing without rows."""

    @abstractmethod
    def _execute(self, sql: str, *parameters: int | str) -> Iterable[rows.Row]:
        """Run a statement with ``?`` for each parameter, and return its rows. A string is a name in a key of a row."""

    def _find_group(self, key: GroupKey) -> GroupState | rows.Row | None:
        if key not in self.known_groups:
            sql = f"SELECT {self._group_columns} FROM groups WHERE cluster = ? AND consumer = ?"
            self.known_groups[key] = next(iter(self._execute(sql, *key)), None)
        return self.known_groups[key]

    def _write_groups(self) -> None:
        self._insert(rows.GROUPS, list(map(rows.group_row, self._groups.values())))
        self._groups.clear()

    def _write_log_ends(self) -> None:
        self._insert(rows.LOG_ENDS, self._log_ends.values())
        self._log_ends.clear()

    def _evict(self) -> bool:
        # After an eviction that freed nothing, do not try again in this transaction: a flood of new names must not
        # cause one scan per event.
        if self._nothing_to_evict:
            return False
        evicted = self._change_groups(FORGET_GROUPS)
        self.groups -= evicted
        self._nothing_to_evict = evicted == 0
        return evicted > 0

    def _change_groups(self, sql: str, *parameters: int) -> int:
        """Run a statement that changes groups and returns their keys. Return their number."""
        self._write_groups()
        changed = [GroupKey(*map(rows.text_of, row)) for row in self._execute(sql, *parameters)]
        for key in changed:
            self.known_groups.pop(key, None)
        return len(changed)


class Committer(ABC):
    """Commits jobs in transactions, for a writer.

    ``failure`` is why the last commit failed, or ``None``. ``log_id`` is the id of new events at the last commit.
    """

    _unstorable: tuple[type[Exception], ...]
    """The errors that one row causes, not the database."""

    def __init__(self, buffer: WriteBuffer, limits: Limits, log_id: str) -> None:
        self._buffer = buffer
        self._limits = limits
        self._log_end_histories = LogEndHistories(limits)
        self.log_id = log_id
        self._last_seq = 0
        self.failure: str | None = None

    def commit(self, take: Take) -> None:
        """Run the jobs. Raises `LogUnavailableError` (nothing stored) or `UnconfirmedError` (maybe stored)."""
        try:
            with self._ready():
                try:
                    self._transact(take)
                except self._unstorable:
                    self._transact_apart(take())
        except LogUnavailableError as error:
            if self.failure != str(error):
                _log.warning("the event log refused a commit", code="commit_refused", reason=str(error))
            self.failure = str(error)
            raise
        self.failure = None

    @abstractmethod
    def _ready(self) -> AbstractContextManager[None]:
        """Prepare for transactions. Turns the errors of the database into `LogUnavailableError`."""

    @abstractmethod
    def _write(self, take: Take, pending: PendingWrites) -> Sequence[Job[Any]]:
        """Run the jobs of ``take`` by `run`, and write ``pending``, in one transaction. Return the jobs."""

    def _follow(self, transaction: Transaction) -> None:
        """Compare the log with the last commit of this process. Forget the histories of a log that was replaced."""
        if transaction.log_id != self.log_id or transaction.last_seq < self._last_seq:
            self._log_end_histories.forget()
            if not transaction.compare({self.log_id: self._last_seq}):
                self._buffer.start_sums_again()

    def _committed(self, transaction: Transaction) -> None:
        if transaction.log_id != self.log_id:
            _log.info("new events get another log id", log_id=transaction.log_id, before=self.log_id)
        self.log_id, self._last_seq = transaction.log_id, transaction.last_seq

    def _transact(self, take: Take) -> None:
        pending = self._buffer.take()
        try:
            jobs = self._write(take, pending)
        except BaseException:
            self._buffer.back(pending)
            self._log_end_histories.forget()
            raise
        for job in jobs:
            job.stored = job.error is None

    def _transact_apart(self, jobs: Sequence[Job[Any]]) -> None:
        """Write the jobs again after the database has refused a value. Only the job with this value gets the error.

        First write the counters and rejects alone. If the database refuses them, drop them: every commit would fail.
        """
        parts: list[Sequence[Job[Any]]] = [jobs, ()]
        while parts:
            some = parts.pop()
            try:
                self._transact(partial(list, some))
            except self._unstorable as error:
                if half := len(some) // 2:
                    parts += [some[half:], some[:half]]
                    continue
                _log.exception("a write has a value that cannot be stored", code="value_not_stored")
                if not some:
                    self._buffer.take()
                for job in some:
                    job.error = UnstorableError(f"cannot be written: {' '.join(str(error).split())}")


def run(jobs: Sequence[Job[Any]], transaction: object) -> None:
    """Run the jobs in a transaction."""
    for job in jobs:
        try:
            job.error, job.result = None, job.work(transaction)
        except LogUnavailableError as error:  # this job alone is refused, before it changed anything
            job.error = error
