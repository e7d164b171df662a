"""Implements the event log on PostgreSQL, which the workers of several replicas share.

Each worker has one writer thread, a few reading connections, and one connection for the lead. Open the log after the
fork: threads and connections do not survive a fork.

While the database is unreachable, `PostgresEventLog` answers pages and scrapes from memory, with the newest state that
this process has read. Memory is used for as long as groups are shown after their last event.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
import structlog

from karrot.clock import Clock, LogTime
from karrot.event import GroupKey
from karrot.eventlog.base import (
    DatabaseStatus,
    GroupState,
    Limits,
    LogSize,
    LogUnavailableError,
    OverloadedError,
)
from karrot.eventlog.event_log import NEARLY_FULL, READ_BYTES, EventLog
from karrot.eventlog.postgres.connections import READ_LIMIT_S, Database, ReadSession, Sessions, one_line
from karrot.eventlog.postgres.group_commit import NotLeadingError, PostgresCommitter, PostgresTransaction
from karrot.eventlog.postgres.leader_lock import WHO_LEADS, LeaderLock
from karrot.eventlog.postgres.schema import Opened, block_table
from karrot.eventlog.rows import EVENT_FIELDS, GROUP_FIELDS, LOG_ID, Row
from karrot.eventlog.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")

_CHECK_S = 0.5
_READ_AGAIN_S = 15.0

_SERVER = """
SELECT coalesce(host(inet_server_addr()), 'a socket'), current_setting('server_version'),
    (SELECT coalesce(bool_or(ssl), false) FROM pg_stat_ssl WHERE pid = pg_backend_pid()),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database),
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(nullif(current_setting('reserved_connections', true), '')::int, 0)
"""

# flush_lag is NULL some time after the standby has everything. A role without pg_monitor gets rows of NULL.
_STANDBYS = """
SELECT application_name, coalesce(max(extract(epoch FROM flush_lag)), 0)::float8, bool_or(state IS NULL)
FROM pg_stat_replication WHERE state IS NULL OR state IN ('catchup', 'streaming') GROUP BY application_name ORDER BY 1
"""


_log = structlog.get_logger(__name__)
_DROP_TIMEOUT = "SET LOCAL lock_timeout = '100ms'"
"""The drop of a block waits this long for readers of the events. New readers wait during this time too."""

_FIRST_WITHIN_RETENTION = (
    "SELECT coalesce((SELECT seq FROM kept_events WHERE log_time_ms >= ? ORDER BY seq LIMIT 1), last_seq + 1) FROM log"
)
_NEXT_BLOCK = (
    "SELECT b.first_seq FROM blocks b, log WHERE b.first_seq > log.first_seq AND b.first_seq <= log.last_seq "
    "ORDER BY b.block LIMIT 1"
)
"""Selects where the block after the oldest block begins, if it has events: the newest events always stay."""

_COLUMNS = ", ".join((LOG_ID, *EVENT_FIELDS))
_PAGE = (
    f"SELECT {_COLUMNS} FROM (SELECT *, sum(length(body)) OVER (ORDER BY seq) - length(body) AS bytes_before FROM "
    "(SELECT * FROM kept_events WHERE seq > ? ORDER BY seq LIMIT ?) AS first) AS sized "
    f"WHERE bytes_before < {READ_BYTES} ORDER BY seq"
)
_SIZE = (
    "SELECT first_seq, last_seq, groups, (SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
    "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')::bigint FROM log"
)


def _or_last(read: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a read return its last result while the database is unreachable, if this result is not too old."""

    @wraps(read)
    def read_or_last(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        name = (read.__name__, *arguments)
        try:
            value = read(self, *arguments, **options)
        except LogUnavailableError:
            at_ms, value = self._known.get(name, (-sys.maxsize, None))
            if self._clock.boot_ms() - at_ms > self._limits.stale_after_ms:
                raise
            return value
        self._known[name] = (self._clock.boot_ms(), value)
        return value

    return read_or_last


class PostgresEventLog(EventLog):
    """The event log in a prepared schema. People see this process as ``name`` when it leads."""

    _writer: Writer
    _committer: PostgresCommitter
    _event_columns = _COLUMNS
    _group_columns = ", ".join(GROUP_FIELDS)
    _events_table = "kept_events"

    def __init__(
        self,
        database: Database,
        opened: Opened,
        clock: Clock,
        *,
        name: str = "",
        patience_s: float = 2.0,
        **bounds: int,
    ) -> None:
        limits = Limits(**bounds)
        super().__init__(clock, limits)
        self._name = name
        self._sessions = Sessions(database)
        self._time = LogTime(clock, opened.anchor)
        self._leader = LeaderLock(self._sessions, name)
        self._is_from_memory = False
        self._known: dict[tuple[object, ...], tuple[int, Any]] = {}
        self._committer = PostgresCommitter(self._sessions, opened.log_id, self._time, self._buffer, limits)
        self._writer = Writer(
            self._committer.commit,
            afterwards=self._make_room,
            idle_work=self._has_idle_work,
            patience_s=patience_s,
        )
        self._stop = threading.Event()
        self._refresher = threading.Thread(target=self._refresh, name="karrot-last-known", daemon=True)
        self._refresher.start()

    @property
    def log_id(self) -> str:
        return self._committer.log_id

    def log_time_ms(self) -> int:
        """The log's own time. It is the same in every replica, except for the time of a round trip."""
        return self._time.now()

    def writable(self) -> str | None:
        return super().writable() or self._sessions.failure

    def memory_age_ms(self) -> int | None:
        return self._live.age_ms() if self._is_from_memory or self._sessions.failure is not None else None

    def live(self) -> Sequence[GroupState]:
        try:
            found, self._is_from_memory = super().live(), False
        except LogUnavailableError:
            found, self._is_from_memory = self._last_known(), True
        return found

    def group(self, key: GroupKey) -> GroupState | None:
        """One live group; its last known state while the database is unreachable. Memory may lack a new group."""
        try:
            return super().group(key)
        except LogUnavailableError:
            known = next((state for state in self._last_known() if state.key == key), None)
            if known is None:
                raise
            return known

    def recall(self, reporter: str, name: str) -> bytes | None:
        """The value that a reporter saved under a name. The leader gets no value from memory, which may be older."""
        return super().recall(reporter, name) if self._leader.token else self._last_recall(reporter, name)

    def _size_now(self) -> LogSize:
        """The size of the log. ``bytes`` are those of all tables and indexes in the schema."""
        with self._reading() as connection:
            first, last, groups, used = connection.execute(_SIZE).fetchone()
        return LogSize(last - first + 1, used, groups, first if last >= first else 0, last if last >= first else 0)

    _last_recall = _or_last(EventLog.recall)
    _heard = _or_last(EventLog._heard)  # noqa: SLF001 - of the own base class
    reporters = _or_last(EventLog.reporters)
    counters = _or_last(EventLog.counters)
    size = _or_last(_size_now)

    def prune(self) -> int:
        before_ms = self.log_time_ms() - self._limits.retention_ms
        self._forget_log_ends(before_ms)
        with self._reading() as connection:
            (first_seq,) = connection.execute(_FIRST_WITHIN_RETENTION, (before_ms,)).fetchone()
        deleted = self._lead_writes(partial(PostgresTransaction.begin_at, first_seq=first_seq))
        return deleted + self._shrink(self._lead_writes)

    def lead(self) -> bool:
        return self._leader.lead()

    def leads(self) -> bool:
        return self._leader.leads()

    def resign(self) -> None:
        self._leader.resign()

    @property
    def replica(self) -> str:
        return self._name

    @_or_last
    def leader(self) -> str | None:
        with self._reading() as connection:
            found = connection.execute(WHO_LEADS).fetchone()
        return None if found is None else found[0]

    @_or_last
    def database(self) -> DatabaseStatus:
        with self._reading() as connection:
            server, lags = connection.execute(_SERVER).fetchone(), None
            try:
                found = connection.execute(_STANDBYS).fetchall()
                lags = None if any(is_hidden for *_, is_hidden in found) else {name: lag for name, lag, _ in found}
            except psycopg.errors.DatabaseError as error:  # a managed service can forbid these functions
                if error.sqlstate is None:  # the connection was lost
                    raise
        return DatabaseStatus(*(*server, lags))

    def close(self) -> None:
        self._stop.set()
        self._refresher.join()
        with contextlib.suppress(LogUnavailableError, OverloadedError):
            self.flush()
        self._writer.stop()
        self.resign()
        self._committer.close()
        self._sessions.close()

    def _refresh(self) -> None:
        """Read everything at intervals, because a scrape may reach only one of several workers."""
        reads = (self.live, self._heard, self.reporters, self.counters, self.size, self.leader, self.database)
        due_s = 0.0
        while not self._stop.is_set():
            if self._sessions.away is not None:
                with contextlib.suppress(LogUnavailableError):
                    self._sessions.connect().close()
            if time.monotonic() >= due_s:
                for read in reads:
                    with contextlib.suppress(LogUnavailableError):
                        if not self._stop.is_set():
                            read()
                due_s = time.monotonic() + min(_READ_AGAIN_S, self._limits.stale_after_ms / 4000)
            self._stop.wait(_CHECK_S)

    def _has_idle_work(self) -> bool:
        return super()._has_idle_work() or self._committer.has_lost_session()

    def _last_known(self) -> Sequence[GroupState]:
        """The groups in memory. Raises if all groups have expired: an empty list would mean an empty log."""
        if self._live.age_ms() > self._limits.stale_after_ms:
            raise LogUnavailableError(self.writable() or "PostgreSQL cannot be read")
        return self._live.last_known()

    def _reading(self) -> AbstractContextManager[ReadSession]:
        return self._sessions.reading()

    def _source(self) -> object:
        # A standby that was promoted may lack the newest events, and then gives their sequence numbers again.
        return (self.log_id, self._sessions.losses)

    def _page(self, connection: ReadSession, after: int, limit: int) -> Sequence[Row]:
        found: Sequence[Row] = connection.execute(_PAGE, (after, limit)).fetchall()
        return found

    def _key(self, key: GroupKey) -> tuple[bytes, bytes]:
        return key.cluster.encode(), key.consumer.encode()

    def _lead_writes(self, work: Callable[[Any], T]) -> T:
        self._leader.leads()  # housekeeping can take longer than PostgreSQL keeps a silent session
        token = self._leader.token

        def checked(transaction: PostgresTransaction) -> T:
            if transaction.leader != token:
                raise NotLeadingError("another replica leads now")
            return work(transaction)

        try:
            return self._writer.begin(checked).wait()
        except NotLeadingError:
            self._leader.resign()
            raise

    def _make_room(self) -> None:
        """Keep the log within its size after a commit that began a block. The leader's `prune` would come too late."""
        if self._committer.began_block:
            self._committer.began_block = False
            try:
                self._shrink(self._committer.run)
            except LogUnavailableError as error:
                _log.warning(
                    "the oldest events could not be deleted now",
                    code="events_not_deleted",
                    reason=str(error),
                )

    def _shrink(self, run: Callable[[Callable[[PostgresTransaction], int]], int]) -> int:
        """Delete the oldest blocks until the log has room, in transactions of ``run``. Returns the number of events.

        Raises `LogUnavailableError` if the size cannot be read. With a size from memory, which never decreases, every
        block would be deleted.
        """
        deleted = 0
        while self._drop_empty() and self._size_now().bytes > self._limits.max_bytes * NEARLY_FULL:
            with self._reading() as connection:
                following = connection.execute(_NEXT_BLOCK).fetchone()
            if following is None:
                break
            deleted += run(partial(PostgresTransaction.begin_at, first_seq=following[0]))
        return deleted

    def _drop_empty(self) -> bool:
        """Drop blocks without events. Returns false if a reader holds a block: more drops would free nothing."""
        sql = (
            "SELECT block FROM blocks b WHERE EXISTS (SELECT FROM blocks n WHERE n.block = b.block + 1 "
            "AND n.first_seq <= (SELECT first_seq FROM log)) ORDER BY block"
        )
        try:
            with self._sessions.taken() as session, session.limited(READ_LIMIT_S):
                for (block,) in session.execute(sql).fetchall():
                    with session.transaction():
                        session.execute(_DROP_TIMEOUT)
                        if session.execute("DELETE FROM blocks WHERE block = %s", (block,)).rowcount:
                            session.execute(f"DROP TABLE {block_table(block)}")
        except psycopg.errors.LockNotAvailable:
            _log.debug("a block of events is still read; it is dropped later")
            return False
        except psycopg.Error as error:
            raise LogUnavailableError(f"PostgreSQL cannot delete old events: {one_line(error)}") from error
        return True
