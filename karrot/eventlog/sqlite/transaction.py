"""Writes events, groups, counters and notes to SQLite in one transaction, under a lock."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import apsw

from karrot import telemetry
from karrot.clock import Anchor
from karrot.event import GroupKey
from karrot.eventlog.base import Appended, ReporterState
from karrot.eventlog.group_state import Arrival, GroupRow, after, with_age
from karrot.eventlog.sqlite import rows
from karrot.eventlog.sqlite.log_end_histories import FORGET_BEFORE, FORGET_LEAST_RECENT, LogEndHistories
from karrot.eventlog.write_buffer import KEPT_REJECTS, CounterKey, PendingWrites

_MOST_CLUSTERS = 1000
_EVICTED_AT_ONCE = 100
_PRUNED_AT_ONCE = 500
FORGET = (
    "DELETE FROM groups WHERE (cluster, consumer) IN "
    f"(SELECT cluster, consumer FROM groups WHERE expired OR gone ORDER BY log_time_ms LIMIT {_EVICTED_AT_ONCE})"
)
_ADD_COUNTER = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"


class Transaction:
    """An open transaction. Create it after BEGIN and call `settle` before COMMIT."""

    def __init__(self, connection: apsw.Connection, log_end_histories: LogEndHistories, *, max_consumers: int) -> None:
        self._connection = connection
        self._log_end_histories = log_end_histories
        self._max_consumers = max_consumers
        counts = connection.execute("SELECT events, groups, log_end_bytes FROM log").get
        self._events, self._groups, self._log_end_bytes = counts
        self._heard: dict[str, int] = {}
        self._counts: Counter[CounterKey] = Counter()
        self._nothing_to_evict = False

    def append(self, arrived: Arrival) -> Appended:
        """Store an event and its log ends, and update its group unless there are too many groups."""
        arrived = self._aged(arrived)
        tracked, row = self._group(arrived.key)
        previous = None if row is None else row.last_seq
        self._connection.execute(
            "INSERT INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", rows.event_row(arrived, previous)
        )
        seq = self._connection.last_insert_rowid()
        self._events += 1
        if arrived.from_webhook:
            self._heard[arrived.key.cluster] = arrived.received_at_ms
        self._add(telemetry.EVENTS_ACCEPTED, 1, source=arrived.event.source.value)
        if not tracked:
            if self._groups >= self._max_consumers and not self._evict():
                return Appended(seq, tracked=False)
            self._groups += 1
        self._connection.execute(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows.group_row(arrived.key, after(row, seq, arrived)),
        )
        return Appended(seq, tracked=True)

    def save_reporter(self, state: ReporterState) -> None:
        """Save a reporter's cursor and state."""
        self._connection.execute("INSERT OR REPLACE INTO reporters VALUES (?, ?, ?, ?)", rows.reporter_row(state))

    def remember(self, reporter: str, name: str, value: bytes) -> None:
        """Save a reporter's value."""
        self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (reporter, name, value))

    def expire(self, before_ms: int) -> int:
        """Mark the groups that were last observed before ``before_ms``. Returns how many."""
        self._connection.execute(
            "UPDATE groups SET expired = 1 WHERE NOT expired AND NOT gone AND log_time_ms < ?", (before_ms,)
        )
        return self._connection.changes()

    def prune_older(self, before_ms: int) -> int:
        """Delete up to 500 of the events stored before ``before_ms``, oldest first. Returns how many."""
        oldest = self._connection.execute(f"SELECT seq, log_time_ms FROM events ORDER BY seq LIMIT {_PRUNED_AT_ONCE}")
        last = max((seq for seq, log_time_ms in oldest if log_time_ms < before_ms), default=0)
        return self._delete_up_to(last)

    def prune_oldest(self) -> int:
        """Delete the oldest twentieth of the events, at most 500. Returns how many."""
        some = max(1, min(_PRUNED_AT_ONCE, self._events // 20))
        last = self._connection.execute(
            "SELECT max(seq) FROM (SELECT seq FROM events ORDER BY seq LIMIT ?)", (some,)
        ).get
        return self._delete_up_to(last or 0)

    def forget_log_ends_before(self, before_ms: int) -> int:
        """Delete up to 500 log-end histories without a sample since ``before_ms``. Returns how many."""
        return self._forget_log_ends(self._connection.execute(FORGET_BEFORE, (before_ms,)))

    def forget_oldest_log_ends(self) -> int:
        """Delete the 100 log-end histories that have had no new sample for the longest time. Returns how many."""
        forgotten = self._forget_log_ends(self._connection.execute(FORGET_LEAST_RECENT))
        self._add(telemetry.LOG_ENDS_DROPPED, forgotten, reason="full")
        return forgotten

    def settle(self, pending: PendingWrites, anchor: Anchor) -> None:
        """Write what every commit includes: counters, rejects, when each cluster was heard, and the log time."""
        for (name, labels), by in (*pending.counts.items(), *self._counts.items()):
            self._connection.execute(_ADD_COUNTER, (name, rows.labels_text(labels), by))
        if pending.rejects:
            for reject in pending.rejects:
                self._connection.execute(
                    "INSERT INTO rejects VALUES (NULL, ?, ?, ?, ?, ?)",
                    (reject.received_at_ms, reject.code, reject.detail, reject.source.value, reject.body),
                )
            newest = self._connection.last_insert_rowid()
            self._connection.execute("DELETE FROM rejects WHERE id <= ?", (newest - KEPT_REJECTS,))
        for cluster, at_ms in self._heard.items():
            self._hear(cluster, at_ms)
        self._connection.execute(
            "UPDATE log SET boot_id = ?, boot_ms = ?, wall_ms = ?, log_ms = ?, events = ?, groups = ?, "
            "log_end_bytes = ?",
            (*anchor, self._events, self._groups, self._log_end_bytes),
        )

    def _aged(self, arrived: Arrival) -> Arrival:
        """The arrival with the age that the histories give, after they have its log ends."""
        recorded = self._log_end_histories.record(self._connection, arrived, self._log_end_bytes)
        self._log_end_bytes += recorded.grown
        for reason, histories in recorded.dropped.items():
            self._add(telemetry.LOG_ENDS_DROPPED, histories, reason=reason)
        return arrived if recorded.age is None else with_age(arrived, recorded.age)

    def _forget_log_ends(self, lengths: Iterable[tuple[Any, ...]]) -> int:
        sizes = [int(length) for (length,) in lengths]
        self._log_end_bytes -= sum(sizes)
        return len(sizes)

    def _group(self, key: GroupKey) -> tuple[bool, GroupRow | None]:
        """Whether the group is tracked, and its row. A damaged row gives ``None``, and the event then replaces it."""
        found = self._connection.execute(
            f"SELECT {rows.GROUP_COLUMNS} FROM groups WHERE cluster = ? AND consumer = ?", key
        ).fetchone()
        if found is None:
            return False, None
        whole = rows.group_of(found)
        if whole is None:
            self._add(telemetry.LOG_DAMAGED, 1)
        return True, None if whole is None else whole[1]

    def _evict(self) -> bool:
        # After an eviction that freed nothing, do not try again in this transaction: a flood of new names must not
        # cause one scan per event.
        if self._nothing_to_evict:
            return False
        self._connection.execute(FORGET)
        evicted = self._connection.changes()
        self._groups -= evicted
        self._nothing_to_evict = evicted == 0
        return evicted > 0

    def _add(self, metric: telemetry.Metric, by: int, **labels: str) -> None:
        """Add to a counter in this transaction, so that the counter always matches the rows that it counts."""
        self._counts[metric.name, tuple(sorted(labels.items()))] += by

    def _hear(self, cluster: str, at_ms: int) -> None:
        self._connection.execute("UPDATE heard SET at_ms = max(at_ms, ?) WHERE cluster = ?", (at_ms, cluster))
        if self._connection.changes():
            return
        self._connection.execute("INSERT INTO heard VALUES (?, ?)", (cluster, at_ms))
        self._connection.execute(
            "DELETE FROM heard WHERE cluster IN (SELECT cluster FROM heard ORDER BY at_ms DESC LIMIT -1 OFFSET ?)",
            (_MOST_CLUSTERS,),
        )

    def _delete_up_to(self, seq: int) -> int:
        self._connection.execute("DELETE FROM events WHERE seq <= ?", (seq,))
        deleted = self._connection.changes()
        self._events -= deleted
        if deleted:
            self._add(telemetry.LOG_PRUNED, deleted)
        return deleted
