"""Applies the rules of the event log within one transaction. Each store adds the statements for its rows.

An event changes its group, and the log-end histories of its partitions.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from karrot import telemetry
from karrot.event import ClusterPartition, GroupKey, LagAge, LogEnd, Source, TopicPartition
from karrot.eventlog.base import Appended, GroupState, ReporterState
from karrot.eventlog.log_end_history import LogEndHistory, lag_age, recorded_partitions
from karrot.eventlog.next_group_state import Arrival, after, with_age
from karrot.eventlog.writer import CounterKey

MOST_CLUSTERS = 1000
"""The most clusters whose last webhook is remembered. Beyond this number, the oldest are dropped."""

EVICTED_AT_ONCE = 100
"""At most this many silent or deleted groups make room for new groups at once."""

_READ_AGAIN_MS = 5_000
"""After a read, a process uses the history for this time. Every history is written when it is read."""

_IN_MEMORY = 500
TOUCHED_MS = 600_000
"""The resolution of ``touched_ms``, because an index on an exact time would cost one page per write."""

ROW_BYTES = 64
"""The bytes of a history's row and of its entries in two indexes, in addition to its names and samples."""


class _Read(NamedTuple):
    at_ms: int
    history: LogEndHistory


class LogEndHistories:
    """The histories in the table ``log_ends``. One object serves a process and remembers what it has read lately.

    A history covers ``retention_ms``. While all histories together have more than ``max_bytes``, the history of a
    further partition is not stored.
    """

    def __init__(self, *, max_bytes: int, retention_ms: int) -> None:
        self._max_bytes = max_bytes
        self._retention_ms = retention_ms
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
            row_id, samples = transaction.find_log_end(key) or (None, b"")
            known = LogEndHistory.unpack(samples) if samples else LogEndHistory()
            history = LogEndHistory() if known is None else known
            if known is None:
                transaction.add(telemetry.LOG_ENDS_DROPPED, 1, reason="damaged")
            if history.record(ends):
                transaction.add(telemetry.LOG_ENDS_DROPPED, 1, reason="contradicted")
            history.forget_before(arrived.log_time_ms - self._retention_ms)
            self._remember(key, _Read(arrived.log_time_ms, history))
            packed = history.pack()
            grown = len(packed) - len(samples)
            if row_id is None:
                grown += 2 * (len(key.cluster.encode()) + len(key.topic.encode())) + ROW_BYTES
                if transaction.log_end_bytes + grown > self._max_bytes:
                    transaction.add(telemetry.LOG_ENDS_DROPPED, 1, reason="full")
                    return history
            transaction.save_log_end(key, row_id, arrived.log_time_ms // TOUCHED_MS * TOUCHED_MS, packed)
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
    """An open transaction. ``groups`` and ``log_end_bytes`` are the log's own counts, and change with the rows.

    ``_forget_before`` and ``_forget_least_recent`` delete log-end histories, and return the bytes of each.
    """

    _forget_before: str
    _forget_least_recent: str

    def __init__(
        self, log_end_histories: LogEndHistories, *, groups: int, log_end_bytes: int, max_consumers: int
    ) -> None:
        self.groups = groups
        self.log_end_bytes = log_end_bytes
        self.heard: dict[str, int] = {}
        self.counts = Counter[CounterKey]()
        self._log_end_histories = log_end_histories
        self._max_consumers = max_consumers
        self._nothing_to_evict = False

    def append(self, arrived: Arrival) -> Appended:
        """Store an event and its log ends, and update its group unless there are too many groups."""
        if arrived.event.source is Source.WEBHOOK:
            self.heard[arrived.key.cluster] = arrived.log_time_ms if arrived.event.from_burrow else 0
        tracked, row = self._find_group(arrived.key)
        if tracked and row is None:  # the row is damaged, and this event replaces it
            self.add(telemetry.LOG_DAMAGED, 1)
        age = self._log_end_histories.record(self, arrived)
        arrived = arrived if age is None else with_age(arrived, age)
        seq = self._insert_event(arrived, None if row is None else row.last_seq)
        self.add(telemetry.EVENTS_ACCEPTED, 1, source=arrived.event.source.value)
        if not tracked:
            if self.groups >= self._max_consumers and not self._evict():
                return Appended(seq, tracked=False)
            self.groups += 1
        self._save_group(after(row, seq, arrived))
        return Appended(seq, tracked=True)

    @abstractmethod
    def save_reporter(self, state: ReporterState) -> None:
        """Save a reporter's cursor and state."""

    @abstractmethod
    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value."""

    @abstractmethod
    def recall(self, reporter: str, name: str) -> bytes | None:
        """Return a reporter's value, as this transaction sees it."""

    @abstractmethod
    def expire(self, before_ms: int) -> int:
        """Mark the groups that were last observed before ``before_ms``. Returns how many."""

    def forget_log_ends_before(self, before_ms: int) -> int:
        """Delete up to 500 log-end histories without a sample since ``before_ms``. Returns how many."""
        return self._forgotten(self._forget_before, before_ms)

    def forget_oldest_log_ends(self) -> int:
        """Delete the 100 log-end histories that have had no new sample for the longest time. Returns how many."""
        forgotten = self._forgotten(self._forget_least_recent)
        self.add(telemetry.LOG_ENDS_DROPPED, forgotten, reason="full")
        return forgotten

    def add(self, metric: telemetry.Metric, by: int, **labels: str) -> None:
        """Add to a counter in this transaction, so that the counter always matches the rows that it counts."""
        self.counts[metric.name, tuple(sorted(labels.items()))] += by

    @abstractmethod
    def find_log_end(self, key: ClusterPartition) -> tuple[Any, bytes] | None:
        """Return the row id and the packed log-end history of a partition."""

    @abstractmethod
    def save_log_end(self, key: ClusterPartition, row_id: Any, touched_ms: int, samples: bytes) -> None:
        """Store a history, in place of the history that `find_log_end` returned with ``row_id``, if any."""

    @abstractmethod
    def _find_group(self, key: GroupKey) -> tuple[bool, GroupState | None]:
        """Return whether the group has a row, and the row's group, or ``None`` if the row is damaged."""

    @abstractmethod
    def _insert_event(self, arrived: Arrival, previous: int | None) -> int:
        """Store an event. Returns its sequence number."""

    @abstractmethod
    def _save_group(self, state: GroupState) -> None:
        """Store a group in place of its earlier row."""

    @abstractmethod
    def _delete_forgettable(self) -> int:
        """Delete up to `EVICTED_AT_ONCE` silent or deleted groups, the oldest first. Returns how many."""

    @abstractmethod
    def _execute(self, sql: str, *parameters: int) -> Iterable[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    def _forgotten(self, sql: str, *parameters: int) -> int:
        sizes = [int(size) for (size,) in self._execute(sql, *parameters)]
        self.log_end_bytes -= sum(sizes)
        return len(sizes)

    def _evict(self) -> bool:
        # After an eviction that freed nothing, do not try again in this transaction: a flood of new names must not
        # cause one scan per event.
        if self._nothing_to_evict:
            return False
        evicted = self._delete_forgettable()
        self.groups -= evicted
        self._nothing_to_evict = evicted == 0
        return evicted > 0
