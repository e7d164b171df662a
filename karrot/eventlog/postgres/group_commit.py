"""Commits the writes of several requests to PostgreSQL in one transaction."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg import errors

from karrot.clock import LogTime
from karrot.event import ClusterPartition, GroupKey
from karrot.eventlog.base import LogUnavailableError, UnconfirmedError
from karrot.eventlog.event_log import Limits
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
from karrot.eventlog.transaction_rules import LogEndHistories
from karrot.eventlog.writer import Committer, Job, PendingWrites, Take, WriteBuffer, run

T = TypeVar("T")
_COMMIT_LIMIT_S = 5.0
"""After this time, a commit's connection is closed. Callers wait less long, and get the answer ``unconfirmed``."""

_LOCK_TIMEOUT = "1500ms"
"""How long a commit waits for the commits of other replicas."""

_IDLE_TIMEOUT = "3s"
"""After this time, PostgreSQL ends a frozen process's transaction, which holds the lock on the log."""

_MOST_HISTORIES = 2000
"""A commit finds at most this many log-end histories together, and others one by one, so that memory is bounded."""

_log = structlog.get_logger(__name__)


class PostgresCommitter(Committer):
    """Commits groups of jobs in PostgreSQL.

    ``log_id`` is the id of the log at the last commit. ``began_block`` is set after a commit that began a block of
    events.
    """

    _unstorable = (
        *(psycopg.DataError, psycopg.IntegrityError),  # SQLSTATE classes 22 and 23; the next four are class 54
        *(errors.ProgramLimitExceeded, errors.StatementTooComplex, errors.TooManyColumns, errors.TooManyArguments),
        *(TypeError, ValueError, OverflowError),
    )

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
        super().__init__(buffer)
        self._sessions = sessions
        self._time = log_time
        self._log_end_histories = log_end_histories
        self._limits = limits
        self._session: Session | None = None
        self.log_id = log_id
        self.began_block = False

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
            self._log_end_histories.forget()
            if not sent or _is_refusal(error):
                _roll_back(session)
                raise
            # The commit may have succeeded. The next commit then stores its counters and rejects a second time.
            _log.warning("the connection was lost during a commit", code="connection_lost", reason=one_line(error))
            session.close()
            reason = f"the connection to PostgreSQL was lost during a commit: {one_line(error)}"
            raise UnconfirmedError(reason) from error
        self._time.reach(log_ms)
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
            locked = session.execute(LOCK_LOG, binary=True)
            groups = session.execute(FIND_GROUPS, key_columns(keys), binary=True) if keys else ()
            ends = session.execute(FIND_LOG_ENDS, partition_columns(partitions), binary=True) if partitions else ()
        row = locked.fetchone()
        if row is None:
            raise LogUnavailableError("the event log in PostgreSQL has no row in the table log")
        log = LogRow(*row)
        if log.log_id != self.log_id:
            self.log_id = log.log_id
            self._log_end_histories.forget()
        transaction = PostgresTransaction(session, log, log_end_histories=self._log_end_histories, limits=self._limits)
        found = {GroupKey(row[0].decode(), row[1].decode()): row for row in groups}
        transaction.known_groups = {**keys, **found}
        samples = {ClusterPartition(row[0].decode(), row[1].decode(), row[2]): row[3] for row in ends}
        transaction.known_log_ends = {**partitions, **samples}
        return transaction, log


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
