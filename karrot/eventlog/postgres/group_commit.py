"""Commits the writes of several requests to PostgreSQL in one transaction.

A commit needs two round trips, however many events it has: the first takes the lock and finds the groups and log-end
histories of the events, and the second writes everything.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import psycopg
import structlog
from psycopg import errors

from karrot import telemetry
from karrot.clock import LogTime
from karrot.event import ClusterPartition, GroupKey
from karrot.eventlog.base import Limits, LogUnavailableError, UnconfirmedError
from karrot.eventlog.next_group_state import Arrival
from karrot.eventlog.postgres.connections import Session, Sessions, one_line
from karrot.eventlog.postgres.schema import NOW_MS, end_frozen_commits, new_block
from karrot.eventlog.rows import EVENTS, GROUP_FIELDS, GROUPS, LOG_ENDS, Row, Table
from karrot.eventlog.transaction_rules import Committer, LogEndHistories, Transaction, run
from karrot.eventlog.writer import Job, PendingWrites, Take, WriteBuffer

T = TypeVar("T")
_COMMIT_LIMIT_S = 5.0
"""After this time, a commit's connection is closed. Callers wait less long, and get the answer ``unconfirmed``."""

_LOCK_TIMEOUT = "1500ms"
"""How long a commit waits for the commits of other replicas."""

_IDLE_TIMEOUT = "3s"
"""After this time, PostgreSQL ends a frozen process's transaction, which holds the lock on the log."""

_MOST_HISTORIES = 2000
"""A commit finds at most this many log-end histories together, and others one by one, so that memory is bounded."""

_BLOCKS = 16
"""The events fill about this many blocks. A block is dropped whole, so the log loses a sixteenth at once."""

_ROW_OVERHEAD = 120
"""The bytes of an event's row and of its entry in the index, in addition to its body."""

_LEAST_BLOCK_BYTES = 1 << 18
_EVENTS_IN_BLOCK = Table("events", f"block bigint, {EVENTS.columns}")
_COLUMNS = ", ".join(GROUP_FIELDS)

_SETTLE = (
    "UPDATE log SET log_ms = %s, wall_ms = %s, first_seq = %s, last_seq = %s, groups = %s, log_end_bytes = %s, "
    "block = %s, block_bytes = %s, block_ms = %s, run = %s"
)
_RUN = (
    "SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), oid, pg_relation_filenode('log')) "
    "FROM pg_database WHERE datname = current_database()"
)
"""Selects the run of the server, and the numbers of the database and of the file of the table ``log``.

A server that was promoted or restored from a backup has another start, a copy of the database has another number, and a
table that was restored or truncated has another file. By default, every role may read them.
"""

_log = structlog.get_logger(__name__)


class NotLeadingError(LogUnavailableError):
    """Another process leads. The write was refused, and nothing was stored."""


class LogRow(NamedTuple):
    """The row of ``log``. ``now_ms`` is the database's clock."""

    log_id: str
    log_ms: int
    first_seq: int
    last_seq: int
    groups: int
    log_end_bytes: int
    block: int
    block_bytes: int
    block_ms: int
    leader: str | None
    run: str
    now_ms: int


_LOCK_LOG = f"SELECT {', '.join(LogRow._fields[:-1])}, {NOW_MS} FROM log FOR UPDATE"


class PostgresTransaction(Transaction):
    """A transaction with the lock on ``log``. ``leader`` is the token of the process that leads.

    ``began_block`` is true if the transaction began a block of events.
    """

    _group_columns = _COLUMNS
    _events_table = "kept_events"
    _find_note = "SELECT value FROM notes WHERE reporter = convert_from(?, 'UTF8') AND name = convert_from(?, 'UTF8')"

    def __init__(
        self, session: Session, log: LogRow, run: str, limits: Limits, log_end_histories: LogEndHistories
    ) -> None:
        super().__init__(limits, log_end_histories, log.last_seq, log.groups, log.log_end_bytes)
        self.log_id, self.first_seq, self.leader = log.log_id, log.first_seq, log.leader
        self.began_block = False
        self._run = run
        self._session = session
        self._log = log
        self._limits = limits
        if log.run not in {"", run}:  # a standby that was promoted, or a restored backup, can lack events
            self.begin_id()

    def begin_at(self, first_seq: int) -> int:
        """Hide the events before ``first_seq`` from readers. Returns their number."""
        deleted = max(0, min(first_seq, self.last_seq + 1) - self.first_seq)
        if deleted:
            self.first_seq += deleted
            self.add(telemetry.LOG_PRUNED, deleted)
        return deleted

    def finish(self, pending: PendingWrites, log_ms: int) -> None:
        """Write the rows, then the log time and the log's own counts."""
        self.settle(pending)
        block = self._block(log_ms)
        counts = (self.first_seq, self.last_seq, self.groups, self.log_end_bytes)
        self._session.execute(_SETTLE, (log_ms, self._log.now_ms, *counts, *block, self._run))

    def _block(self, log_ms: int) -> tuple[int, int, int]:
        """The next commit's block, its bytes and its start time. A block ends when it is too large or too old."""
        size = self._log.block_bytes + sum(len(row[-2]) + len(row[-1]) + _ROW_OVERHEAD for row in self._events)
        is_full = size >= max(_LEAST_BLOCK_BYTES, self._limits.max_bytes // _BLOCKS)
        is_old = log_ms - self._log.block_ms >= max(1, self._limits.retention_ms // _BLOCKS)
        if not size or not (is_full or is_old):
            return self._log.block, size, self._log.block_ms
        for sql, parameters in new_block(self._log.block + 1, self.last_seq + 1):
            self._session.execute(sql, parameters)
        self.began_block = True
        return self._log.block + 1, 0, log_ms

    def _insert(self, table: Table, rows: Collection[Row]) -> None:
        if not rows:
            return
        if table is EVENTS:
            table, rows = _EVENTS_IN_BLOCK, [(self._log.block, *row) for row in rows]
        self._session.execute(table.insert_arrays, arrays(table, rows))

    def _execute(self, sql: str, *parameters: int | str) -> Iterable[Row]:
        values = [each.encode() if isinstance(each, str) else each for each in parameters]
        return self._session.execute(sql.replace("?", "%s"), values, binary=True)


class PostgresCommitter(Committer):
    """Commits groups of jobs in PostgreSQL. ``began_block`` is set after a commit that began a block of events."""

    _unstorable = (
        *(psycopg.DataError, psycopg.IntegrityError),  # SQLSTATE classes 22 and 23; the next four are class 54
        *(errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns, errors.TooManyArguments),
        *(TypeError, ValueError, OverflowError),
    )

    def __init__(self, sessions: Sessions, log_id: str, log_time: LogTime, buffer: WriteBuffer, limits: Limits) -> None:
        super().__init__(buffer, limits, log_id)
        self._sessions = sessions
        self._time = log_time
        self._session: Session | None = None
        self._run = ""
        self.began_block = False

    def run(self, work: Callable[[PostgresTransaction], T]) -> T:
        """Run one piece of work in a durable transaction, in the writer's thread. Raises what `commit` raises."""
        job = Job(work)
        self.commit(lambda: [job])
        if job.error is not None:
            raise job.error
        return job.result

    def has_lost_session(self) -> bool:
        """Whether the session ended since the last commit. The next commit then learns the present log id."""
        return self._session is not None and not self._session.is_usable()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    @contextlib.contextmanager
    def _ready(self) -> Iterator[None]:
        try:
            self._open()
            yield
        except psycopg.Error as error:
            if isinstance(error, errors.LockNotAvailable) and self._session is not None:
                end_frozen_commits(self._session)
            raise LogUnavailableError(f"PostgreSQL refused a commit: {one_line(error)}") from error

    def _open(self) -> Session:
        """The session of the commits. Replaces a session that ended."""
        if self._session is not None and self.has_lost_session():
            self._session.close()
            self._sessions.give_back(self._session)
            self._session = None
        if self._session is None:
            session = self._session = self._sessions.take()
            # No statement_timeout: it would end the wait for a synchronous standby, and COMMIT would still succeed.
            with session.limited(_COMMIT_LIMIT_S):
                session.set(
                    lock_timeout=_LOCK_TIMEOUT,
                    statement_timeout="0",
                    idle_in_transaction_session_timeout=_IDLE_TIMEOUT,
                )
                self._run = next(session.execute(_RUN))[0]
        return self._session

    def _write(self, take: Take, pending: PendingWrites) -> Sequence[Job[Any]]:
        session, jobs, sent = self._open(), take(), False
        try:
            with session.limited(_COMMIT_LIMIT_S):
                transaction, log = self._begin(session, jobs)
                run(jobs, transaction)
                log_ms = max(self._time.now(), log.log_ms)
                with session.pipeline():
                    transaction.finish(pending, log_ms)
                    sent = True
                    session.execute("COMMIT")
        except BaseException as error:
            if not sent or _is_refusal(error):
                _roll_back(session)
                raise
            # The commit may have succeeded. The next commit then stores its counters and rejects a second time.
            _log.warning("the connection was lost during a commit", code="connection_lost", reason=one_line(error))
            session.close()
            reason = f"the connection to PostgreSQL was lost during a commit: {one_line(error)}"
            raise UnconfirmedError(reason) from error
        self._time.reach(log_ms)
        self._committed(transaction)
        self.began_block |= transaction.began_block
        return jobs

    def _begin(self, session: Session, jobs: Sequence[Job[Any]]) -> tuple[PostgresTransaction, LogRow]:
        """Lock the log, and find the rows that the jobs' events need, in one round trip."""
        arrivals = [job.work for job in jobs if isinstance(job.work, Arrival)]
        keys = dict.fromkeys(each.key for each in arrivals)
        needed = (key for each in arrivals for key in self._log_end_histories.needed(each))
        partitions = dict.fromkeys(islice(needed, _MOST_HISTORIES))
        with session.pipeline():
            session.execute("BEGIN")
            locked = session.execute(_LOCK_LOG, binary=True)
            groups = session.execute(GROUPS.find(_COLUMNS), arrays(GROUPS, keys), binary=True) if keys else ()
            sql = LOG_ENDS.find("cluster, topic, partition, samples")
            ends = session.execute(sql, arrays(LOG_ENDS, partitions), binary=True) if partitions else ()
        row = locked.fetchone()
        if row is None:
            raise LogUnavailableError("the event log in PostgreSQL has no row in the table log")
        log = LogRow(*row)
        transaction = PostgresTransaction(session, log, self._run, self._limits, self._log_end_histories)
        self._follow(transaction)
        found = {GroupKey(row[0].decode(), row[1].decode()): row for row in groups}
        transaction.known_groups = {**keys, **found}
        samples = {ClusterPartition(row[0].decode(), row[1].decode(), row[2]): row[3] for row in ends}
        transaction.known_log_ends = {**partitions, **samples}
        return transaction, log


def arrays(table: Table, rows: Iterable[Row]) -> list[Any]:
    """An array for each column of some rows, or of their keys."""
    return [
        [each.encode() if isinstance(each, str) else each for each in column] if kind == "bytea" else list(column)
        for kind, column in zip(table.types, zip(*rows, strict=True), strict=False)
    ]


def _is_refusal(error: BaseException) -> bool:
    """Whether PostgreSQL has refused a statement, so that no later statement was executed.

    An error without a code comes from the connection. The classes 08 and 57 mean that the session ended: all statements
    may have been executed before.
    """
    return isinstance(error, psycopg.Error) and (error.sqlstate or "08")[:2] not in {"08", "57"}


def _roll_back(session: Session) -> None:
    try:
        session.rollback()
    except psycopg.Error:
        session.close()
