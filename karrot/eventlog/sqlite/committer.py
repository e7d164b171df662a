"""Commits groups of writes to the file, and recovers where SQLite refuses them."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import apsw

from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.pending_counters import WriteBuffer
from karrot.eventlog.sqlite.connections import LogFile, MemoryFile
from karrot.eventlog.sqlite.database import near_its_cap
from karrot.eventlog.sqlite.write_batch import Transaction
from karrot.eventlog.sqlite.writer import Job

Take = Callable[[], Sequence[Job[Any]]]

_ATTEMPTS = 50
_log = logging.getLogger(__name__)


class Committer:
    """Commits groups of jobs under a lock. Used by the writer alone.

    ``trouble`` says why the last commit failed, ``None`` if it did not.
    """

    def __init__(
        self,
        file: LogFile | MemoryFile,
        lock: AbstractContextManager[object],
        buffer: WriteBuffer,
        *,
        max_consumers: int,
    ) -> None:
        self._file = file
        self._lock = lock
        self._buffer = buffer
        self._max_consumers = max_consumers
        self.trouble: str | None = None

    def commit(self, take: Take) -> None:
        """Run the jobs that ``take`` gives in one durable transaction. Raises `LogUnavailableError` if that fails.

        ``take`` is called as late as possible: a job that was taken can no longer be answered "nothing was stored".
        """
        with self._lock:
            try:
                self._file.follow()
                self._attempt(take)
            except (apsw.Error, OSError) as error:
                self._file.distrust()
                self.trouble = f"{type(error).__name__}: {error}"
                _log.warning("the event log refused a commit: %s", self.trouble)
                raise LogUnavailableError(self.trouble) from error
            self.trouble = None

    def _attempt(self, take: Take) -> None:
        try:
            self._transact(take)
        except apsw.FullError:
            # Dropping events makes room below the log's own cap; on a full volume it would only lose them.
            if not near_its_cap(self._file.connection):
                raise
            self._transact_with_room(take)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._file.replace(str(error))
            self._transact(take)
        except (TypeError, ValueError, OverflowError):
            # One job holds a value that cannot be written; the others can be.
            for job in take():
                self._alone(job)

    def _alone(self, job: Job[Any]) -> None:
        try:
            self._transact(lambda: [job])
        except (TypeError, ValueError, OverflowError) as error:
            _log.exception("a write was refused for what it holds")
            job.error = LogUnavailableError(f"cannot be written: {error}")

    def _transact(self, take: Take) -> None:
        connection = self._file.connection
        pending = self._buffer.take()
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection, max_consumers=self._max_consumers)
            jobs = take()
            for job in jobs:
                job.result = job.work(transaction)
            transaction.settle(pending, self._file.time.anchor())
            connection.execute("COMMIT")
        except BaseException:
            self._buffer.back(pending)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for job in jobs:
            job.stored = True

    def _transact_with_room(self, take: Take) -> None:
        """Drop the oldest events until the newest fit; raise what SQLite says if they never do."""
        for _ in range(_ATTEMPTS):
            self._transact(lambda: [Job(Transaction.prune_oldest)])
            with contextlib.suppress(apsw.FullError):
                return self._transact(take)
        return self._transact(take)
