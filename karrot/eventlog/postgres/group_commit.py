"""Commits the writes of several requests to PostgreSQL in one transaction."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg import errors

from karrot.clock import LogTime
from karrot.eventlog.base import LogUnavailableError, UnconfirmedError
from karrot.eventlog.next_group_state import Arrival
from karrot.eventlog.postgres.buffered_transaction import (
    FIND_GROUPS,
    FIND_LOG_ENDS,
    LOCK_LOG,
    LogRow,
    PostgresTransaction,
    key_columns,
    partition_columns,
)
from karrot.eventlog.postgres.connections import Session, Sessions, one_line
from karrot.eventlog.postgres.schema import end_frozen_commits
from karrot.eventlog.sql_log import Limits
from karrot.eventlog.transaction_rules import LogEndHistories
from karrot.eventlog.writer import Job, Take, WriteBuffer, write_apart

T = TypeVar("T")
_COMMIT_LIMIT_S = 5.0
"""After this time, a commit's connection is closed. Callers wait less long, and get the answer ``unconfirmed``."""

_LOCK_TIMEOUT = "1500ms"
"""How long a commit waits for the commits of other replicas."""

_IDLE_TIMEOUT = "3s"
"""After this time, PostgreSQL ends a frozen process's transaction, which holds the lock on the log."""

_MOST_HISTORIES = 2000
"""A commit finds at most this many log-end histories together, and others one by one, so that memory is bounded."""

_UNSTORABLE = (
    *(psycopg.DataError, psycopg.IntegrityError),  # SQLSTATE classes 22 and 23
    *(errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns, errors.TooManyArguments),  # 54
    *(TypeError, ValueError, OverflowError),
)
"""The errors that one row causes, not the server."""

_log = structlog.get_logger(__name__)


class PostgresCommitter:
    """Commits groups of jobs, for the writer. ``trouble`` is why the last commit failed, or ``None``.

    ``log_id`` is the id of the log at the last commit. ``began_block`` is set after a commit that began a block of
    events.
    """

    def __init__(
        self,
        sessions: Sessions,
        log_id: str,
        log_time: LogTime,
        buffer: WriteBuffer,
        *,
        log_end_histories: LogEndHistories,
        limits: Limits,
    ) -> None:
        self._sessions = sessions
        self._time = log_time
        self._buffer = buffer
        self._log_end_histories = log_end_histories
        self._limits = limits
        self._session: Session | None = None
        self.log_id = log_id
        self.trouble: str | None = None
        self.began_block = False

    def commit(self, take: Take) -> None:
        """Run the jobs. Raises `LogUnavailableError` (nothing stored) or `UnconfirmedError` (maybe stored)."""
        try:
            session = self._open()
            jobs = take()
            try:
                self._transact(session, jobs)
            except _UNSTORABLE:
                write_apart(jobs, partial(self._transact, session), _UNSTORABLE, self._buffer)
        except psycopg.Error as error:
            if isinstance(error, errors.LockNotAvailable) and self._session is not None:
                end_frozen_commits(self._session)
            raise self._refused(f"PostgreSQL refused a commit: {one_line(error)}") from error
        except LogUnavailableError as error:
            self.trouble = str(error)
            raise
        self.trouble = None

    def run(self, work: Callable[[PostgresTransaction], T]) -> T:
        """Run one piece of work in a durable transaction, in the writer's thread. Raises what `commit` raises."""
        job = Job(work)
        self.commit(lambda: [job])
        if job.error is not None:
            raise job.error
        return job.result

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _open(self) -> Session:
        if self._session is not None and not self._session.is_usable():
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
        return self._session

    def _refused(self, trouble: str) -> LogUnavailableError:
        if self.trouble != trouble:
            _log.warning("the event log refused a commit", code="commit_refused", reason=trouble)
        self.trouble = trouble
        return LogUnavailableError(trouble)

    def _transact(self, session: Session, jobs: Sequence[Job[Any]]) -> None:
        pending = self._buffer.take()
        sent = False
        try:
            with session.limited(_COMMIT_LIMIT_S):
                transaction, log = self._begin(session, jobs)
                for job in jobs:
                    self._work(job, transaction)
                log_ms = max(self._time.now(), log.log_ms)
                with session.pipeline():
                    transaction.settle(pending, log_ms)
                    sent = True
                    session.execute("COMMIT")
        except BaseException as error:
            self._log_end_histories.forget()
            self._buffer.back(pending)
            if not sent or _is_refusal(error):
                _roll_back(session)
                raise
            # The commit may have succeeded. The next commit then stores its counters and rejects a second time.
            _log.warning("the connection was lost during a commit", code="connection_lost", reason=one_line(error))
            session.close()
            reason = f"the connection to PostgreSQL was lost during a commit: {one_line(error)}"
            raise UnconfirmedError(reason) from error
        for job in jobs:
            job.stored = job.error is None
        self._time.reach(log_ms)
        self.began_block |= transaction.began_block

    def _begin(self, session: Session, jobs: Sequence[Job[Any]]) -> tuple[PostgresTransaction, LogRow]:
        """Lock the log, and find the rows that the jobs' events need, in one round trip."""
        arrivals = [job.work for job in jobs if isinstance(job.work, Arrival)]
        keys = dict.fromkeys(each.key for each in arrivals)
        needed = (key for each in arrivals for key in self._log_end_histories.needed(each))
        partitions = dict.fromkeys(islice(needed, _MOST_HISTORIES))
        with session.pipeline():
            session.execute("BEGIN")
            locked = session.execute(LOCK_LOG, binary=True)
            groups = session.execute(FIND_GROUPS, key_columns(keys), binary=True) if keys else None
            ends = session.execute(FIND_LOG_ENDS, partition_columns(partitions), binary=True) if partitions else None
        row = locked.fetchone()
        if row is None:
            raise LogUnavailableError("the event log in PostgreSQL has no row in the table log")
        log = LogRow(*row)
        if log.log_id != self.log_id:
            self.log_id = log.log_id
            self._log_end_histories.forget()
        transaction = PostgresTransaction(
            session,
            log,
            groups.fetchall() if groups else (),
            partitions,
            ends.fetchall() if ends else (),
            log_end_histories=self._log_end_histories,
            limits=self._limits,
        )
        return transaction, log

    def _work(self, job: Job[Any], transaction: PostgresTransaction) -> None:
        try:
            job.result = job.work(transaction)
        except LogUnavailableError as error:  # this job alone is refused, before it changed anything
            job.error = error


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
