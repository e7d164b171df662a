"""Stores the log-end history of each partition in the event log, in the transaction of the events."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import apsw

from karrot.event import ClusterPartition, LagAge, LogEnd, TopicPartition
from karrot.eventlog.group_state import Arrival
from karrot.eventlog.log_end_history import LogEndHistory, lag_age

_READ_AGAIN_MS = 5_000
"""For how long a process uses a history that it has read. Every history is written when it is read."""

_IN_MEMORY = 500
TOUCHED_MS = 600_000
"""The resolution of ``touched_ms``: an index on an exact time would cost a page per write."""

_ROW_BYTES = 64
SIZE = f"length(samples) + 2 * (octet_length(cluster) + octet_length(topic)) + {_ROW_BYTES}"
"""The bytes that a history takes in the table and in both indexes: the names are stored twice."""

FORGET_LEAST_RECENT = (
    f"DELETE FROM log_ends WHERE rowid IN (SELECT rowid FROM log_ends ORDER BY touched_ms LIMIT 100) RETURNING {SIZE}"
)
FORGET_BEFORE = (
    f"DELETE FROM log_ends WHERE rowid IN (SELECT rowid FROM log_ends WHERE touched_ms < ? LIMIT 500) RETURNING {SIZE}"
)
_READ = "SELECT rowid, samples FROM log_ends WHERE cluster = ? AND topic = ? AND partition = ?"
_INSERT = "INSERT INTO log_ends VALUES (?, ?, ?, ?, ?)"
_UPDATE = "UPDATE log_ends SET touched_ms = ?, samples = ? WHERE rowid = ?"


class _Read(NamedTuple):
    at_ms: int
    history: LogEndHistory


class Recorded(NamedTuple):
    """What one event changed: the age of its group, the stored bytes, and the dropped histories by reason."""

    age: LagAge | None
    grown: int
    dropped: Counter[str]


class LogEndHistories:
    """The histories in the table ``log_ends``. One object serves a process and remembers what it has read lately.

    A history keeps ``retention_ms``. While all histories together have more than ``max_bytes``, the history of a
    further partition is not stored.
    """

    def __init__(self, *, max_bytes: int, retention_ms: int) -> None:
        self._max_bytes = max_bytes
        self._retention_ms = retention_ms
        self._lately: dict[ClusterPartition, _Read] = {}

    def forget(self) -> None:
        """Forget what was read: the transaction was rolled back, or the file was replaced."""
        self._lately.clear()

    def record(self, connection: apsw.Connection, arrived: Arrival, stored_bytes: int) -> Recorded:
        """Add an event's samples to the histories of its partitions, and find the age of its group from them."""
        grown, dropped = 0, Counter[str]()

        def lately(place: TopicPartition, now: LogEnd) -> LogEndHistory | None:
            read = self._lately.get(ClusterPartition(arrived.key.cluster, *place))
            if read is None or not 0 <= arrived.log_time_ms - read.at_ms < _READ_AGAIN_MS:
                return None
            return read.history if read.history.agrees_with(now) else None

        def record(place: TopicPartition, ends: Sequence[LogEnd]) -> LogEndHistory:
            nonlocal grown
            key = ClusterPartition(arrived.key.cluster, *place)
            rowid, stored = connection.execute(_READ, key).fetchone() or (None, b"")
            known = LogEndHistory.unpack(stored) if stored else LogEndHistory()
            history = LogEndHistory() if known is None else known
            if known is None:
                dropped["damaged"] += 1
            if history.record(ends):
                dropped["contradicted"] += 1
            history.forget_before(arrived.log_time_ms - self._retention_ms)
            self._remember(key, _Read(arrived.log_time_ms, history))
            packed = history.pack()
            touched_ms = arrived.log_time_ms // TOUCHED_MS * TOUCHED_MS
            if rowid is not None:
                connection.execute(_UPDATE, (touched_ms, packed, rowid))
                grown += len(packed) - len(stored)
            else:
                size = len(packed) + 2 * (len(key.cluster.encode()) + len(key.topic.encode())) + _ROW_BYTES
                if stored_bytes + grown + size > self._max_bytes:
                    dropped["full"] += 1
                    return history
                connection.execute(_INSERT, (*key, touched_ms, packed))
                grown += size
            return history

        age = lag_age(arrived.event, arrived.observed_log_ms, lately, record)
        return Recorded(age, grown, dropped)

    def _remember(self, key: ClusterPartition, read: _Read) -> None:
        self._lately.pop(key, None)  # so that the first key is always the one that was read longest ago
        self._lately[key] = read
        if len(self._lately) > _IN_MEMORY:
            del self._lately[next(iter(self._lately))]
