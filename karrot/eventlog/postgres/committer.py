"""Commits groups of writes to PostgreSQL, and finds out after a lost connection whether the last commit was made."""

import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors

from karrot.clock import LogTime
from karrot.eventlog.base import LogUnavailableError, UnconfirmedError
from karrot.eventlog.postgres.connections import Connection, Database, is_usable, one_line
from karrot.eventlog.postgres.schema import end_frozen_commits
from karrot.eventlog.postgres.transaction import (
    FIND_GROUPS,
    FIND_LOG_ENDS,
    LOCK_LOG,
    CollectedLogEnds,
    LogRow,
    PostgresTransaction,
    key_columns,
    partition_columns,
)
from karrot.eventlog.sql_log import Limits
from karrot.eventlog.transaction import Append, LogEndHistories
from karrot.eventlog.writer import Job, PendingWrites, Take, WriteBuffer, write_apart

T = TypeVar("T")
_COMMIT_LIMIT_S = 5.0
"""How long a commit may take until its connection is shut down. Callers wait less, and are answered ``unconfirmed``."""

_LOCK_TIMEOUT = "1500ms"
"""How long a commit waits for the commits of other replicas."""

_IDLE_TIMEOUT = "3s"
"""After this time PostgreSQL ends the transaction of a frozen process, because it holds the lock on the log."""

_MOST_HISTORIES = 2000
"""The most log-end histories that are found together. A commit finds others one by one, so that memory is bounded."""

_UNSTORABLE = (
    *(psycopg.DataError, psycopg.IntegrityError),  # the classes 22 and 23
    *(errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns, errors.TooManyArguments),  # 54
    *(TypeError, ValueError, OverflowError),
)
"""The errors that are about one row, not about the server."""

_log = logging.getLogger(__name__)


class _Doubt(NamedTuple):
    """A commit whose outcome is unknown because its connection was lost."""

    commits: int
    pending: PendingWrites


class PostgresCommitter:
    """Commits groups of jobs, for the writer. ``trouble`` is why the last commit failed, or ``None``.

    ``log_id`` is the id of the log at the last commit. ``began_block`` is set after a commit that began a block of
    events.
    """

    def __init__(
        self,
        database: Database,
        log_id: str,
        log_time: LogTime,
        buffer: WriteBuffer,
        *,
        log_end_histories: LogEndHistories,
        limits: Limits,
    ) -> None:
        self._database = database
        self._time = log_time
        self._buffer = buffer
        self._log_end_histories = log_end_histories
        self._limits = limits
        self._connection: Connection | None = None
        self._writer = secrets.token_hex(8)
        self._commits = 0
        self._doubt: _Doubt | None = None
        self.log_id = log_id
        self.trouble: str | None = None
        self.began_block = False

    def commit(self, take: Take) -> None:
        """Run the jobs. Raises `LogUnavailableError` (nothing stored) or `UnconfirmedError` (nobody knows)."""
        try:
            connection = self._open()
            self._settle_doubt(connection)
            jobs = take()
            try:
                self._transact(connection, jobs)
            except _UNSTORABLE:
                write_apart(jobs, partial(self._transact, connection), _UNSTORABLE, self._buffer)
        except psycopg.Error as error:
            if isinstance(error, errors.LockNotAvailable) and self._connection is not None:
                end_frozen_commits(self._connection)
            raise self._refused(f"PostgreSQL refused a commit: {one_line(error)}") from error
        except LogUnavailableError as error:
            self.trouble = str(error)
            raise
        self.trouble = None

    def run(self, work: Callable[[PostgresTransaction], T]) -> T:
        """Run one piece of work in a durable transaction, in the writer's thread. Raises as `commit`."""
        job = Job(work)
        self.commit(lambda: [job])
        if job.error is not None:
            raise job.error
        return job.result

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.execute("DELETE FROM writers WHERE id = %s", (self._writer,))
            self._connection.close()

    def _open(self) -> Connection:
        if self._connection is None or not is_usable(self._connection):
            if self._connection is not None:
                self._connection.close()
            # No statement_timeout: it would end the wait for a synchronous standby, and COMMIT would still succeed.
            self._connection = self._database.connect(
                lock_timeout=_LOCK_TIMEOUT,
                statement_timeout="0",
                idle_in_transaction_session_timeout=_IDLE_TIMEOUT,
            )
        return self._connection

    def _refused(self, trouble: str) -> LogUnavailableError:
        if self.trouble != trouble:
            _log.warning("the event log refused a commit", extra={"code": "commit_refused", "reason": trouble})
        self.trouble = trouble
        return LogUnavailableError(trouble)

    def _settle_doubt(self, connection: Connection) -> bool:
        """Find out whether the commit in doubt was made. If it was not, its counters go into the next commit."""
        if self._doubt is None:
            return True
        # The lock on ``log`` ends with the commit in doubt, so after it the answer is final.
        with self._database.limited(connection, _COMMIT_LIMIT_S), connection.transaction():
            connection.execute("SELECT FROM log FOR UPDATE")
            found = connection.execute("SELECT commits FROM writers WHERE id = %s", (self._writer,)).fetchone()
        is_made = found is not None and found[0] == self._doubt.commits
        if not is_made:
            self._buffer.back(self._doubt.pending)
        self._doubt = None
        return is_made

    def _transact(self, connection: Connection, jobs: Sequence[Job[Any]]) -> None:
        pending = self._buffer.take()
        sent = False
        try:
            with self._database.limited(connection, _COMMIT_LIMIT_S):
                transaction, log = self._begin(connection, jobs)
                for job in jobs:
                    self._work(job, transaction)
                log_ms = max(self._time.now(), log.log_ms)
                with connection.pipeline():
                    transaction.settle(pending, self._writer, self._commits + 1, log_ms)
                    sent = True
                    connection.execute("COMMIT")
        except BaseException as error:
            self._log_end_histories.forget()
            if not sent or _is_refusal(error):
                self._buffer.back(pending)
                _roll_back(connection)
                raise
            _log.warning(
                "the connection was lost during a commit", extra={"code": "connection_lost", "reason": one_line(error)}
            )
            connection.close()
            self._commits += 1
            self._doubt = _Doubt(self._commits, pending)
            try:  # the server may have ended this session alone
                is_made = self._settle_doubt(self._open())
            except (psycopg.Error, LogUnavailableError):
                reason = f"the connection to PostgreSQL was lost during a commit: {one_line(error)}"
                raise UnconfirmedError(reason) from error
            if not is_made:
                raise
            self._stored(jobs)
            return
        self._commits += 1
        self._stored(jobs)
        self._time.reach(log_ms)
        self.began_block |= transaction.began_block

    def _begin(self, connection: Connection, jobs: Sequence[Job[Any]]) -> tuple[PostgresTransaction, LogRow]:
        """Lock the log, and find the rows that the jobs' events need, in one round trip."""
        arrivals = [job.work.arrived for job in jobs if isinstance(job.work, Append)]
        keys = dict.fromkeys(each.key for each in arrivals)
        needed = (key for each in arrivals for key in self._log_end_histories.needed(each))
        partitions = dict.fromkeys(islice(needed, _MOST_HISTORIES))
        with connection.pipeline():
            connection.execute("BEGIN")
            locked = connection.execute(LOCK_LOG, binary=True)
            groups = connection.execute(FIND_GROUPS, key_columns(keys), binary=True) if keys else None
            ends = connection.execute(FIND_LOG_ENDS, partition_columns(partitions), binary=True) if partitions else None
        row = locked.fetchone()
        if row is None:
            raise LogUnavailableError("the event log in PostgreSQL has no row in the table log")
        log = LogRow(*row)
        if log.log_id != self.log_id:
            self.log_id = log.log_id
            self._log_end_histories.forget()
        collected = CollectedLogEnds(connection, partitions, ends.fetchall() if ends else ())
        transaction = PostgresTransaction(
            connection,
            log,
            groups.fetchall() if groups else (),
            collected,
            log_end_histories=self._log_end_histories,
            limits=self._limits,
        )
        return transaction, log

    def _work(self, job: Job[Any], transaction: PostgresTransaction) -> None:
        try:
            job.result = job.work(transaction)
        except LogUnavailableError as error:  # this job alone is refused, before it changed anything
            job.error = error

    def _stored(self, jobs: Sequence[Job[Any]]) -> None:
        for job in jobs:
            job.stored = job.error is None


def _is_refusal(error: BaseException) -> bool:
    """Whether PostgreSQL has refused a statement, so that no later statement was executed.

    An error without a code comes from the connection. The classes 08 and 57 say that the session ends: it may have
    executed everything before.
    """
    return isinstance(error, psycopg.Error) and (error.sqlstate or "08")[:2] not in {"08", "57"}


def _roll_back(connection: Connection) -> None:
    try:
        connection.rollback()
    except psycopg.Error:
        connection.close()
