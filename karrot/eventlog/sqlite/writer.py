"""Commits waiting writes in groups, in a thread under ``commit.lock``, and recovers if SQLite refuses a commit.

With several writers, SQLite's own busy handler lets one of them starve (5 s measured). Before SQLite 3.51.3, two
connections that commit and checkpoint at the same time can corrupt a database. One lock for commits and checkpoints
prevents both. All writes that arrive during one commit share the flush of the next commit.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeVar

import apsw

from karrot.eventlog.base import TURN_SHARE, LogUnavailableError, OverloadedError, UnconfirmedError
from karrot.eventlog.sqlite.connections import LogFile, MemoryFile
from karrot.eventlog.sqlite.database import near_its_cap
from karrot.eventlog.sqlite.log_end_histories import LogEndHistories
from karrot.eventlog.sqlite.transaction import Transaction
from karrot.eventlog.write_buffer import WriteBuffer

T = TypeVar("T")
_GROUP = 256
_TICK_S = 1.0
_GATHER_S = 0.001
"""How long a commit waits until it has as many jobs as the commit before. Under load most of the cost is per commit."""

_GATHER_FROM = 5
"""If the commit before had fewer jobs, there is little load, and a wait would only delay the answers."""

_ATTEMPTS = 50
"""How many times the oldest events are dropped before the newest are refused."""

_log = logging.getLogger(__name__)


class Job(Generic[T]):
    """One piece of work for a transaction, such as an append. The caller of `Writer.begin` can wait for it.

    ``stored`` is set once the transaction with the work is durable. ``cancel(job)`` removes the job from the queue and
    returns whether it was there. A job that is in no queue cannot be cancelled.
    """

    __slots__ = ("_calls", "_cancel", "_finished", "_patience_s", "error", "result", "stored", "work")
    result: T

    def __init__(
        self,
        work: Callable[[Transaction], T],
        *,
        cancel: Callable[["Job[Any]"], bool] = lambda _job: False,
        patience_s: float = 2.0,
    ) -> None:
        self.work = work
        self.stored = False
        self.error: Exception | None = None
        self._cancel = cancel
        self._patience_s = patience_s
        self._finished = False
        self._calls: deque[Callable[[], object]] = deque()

    def finish(self, error: Exception | None = None) -> None:
        """Set the outcome and run the waiting calls. A stored job has no error, even if something failed after it."""
        self.error = None if self.stored else self.error or error
        self._finished = True
        self._call()

    def when_done(self, call: Callable[[], object]) -> None:
        """Run ``call`` once: in the thread that finishes the job, or immediately if the job is finished."""
        self._calls.append(call)
        if self._finished:
            self._call()

    def withdraw(self) -> bool:
        """Cancel the job. True if no transaction has taken it or will take it."""
        return self._cancel(self)

    def wait(self) -> T:
        """Wait until the work is durable and return its result.

        Raises `OverloadedError` if no transaction took the job in time (and none will take it), `LogUnavailableError`
        if the transaction failed, and `UnconfirmedError` if the transaction did not end in time.
        """
        turn_s = self._patience_s * TURN_SHARE
        gate = threading.Lock()  # a bare lock: an Event costs twice as much
        gate.acquire()
        self.when_done(gate.release)
        if not gate.acquire(timeout=turn_s):
            if self.withdraw():
                raise OverloadedError(f"waited {turn_s:g} s for a commit")
            if not gate.acquire(timeout=self._patience_s - turn_s):
                raise UnconfirmedError("the disk does not answer")
        if self.error is not None:
            raise self.error
        return self.result

    def _call(self) -> None:
        # `finish` sets the flag before it calls this; `when_done` appends before it reads the flag. Taking from a deque
        # is atomic. So each call runs exactly once.
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:
                return
            call()


Take = Callable[[], Sequence[Job[Any]]]


class Committer:
    """Commits groups of jobs under a lock, for the writer. ``trouble`` is why the last commit failed, or ``None``."""

    def __init__(
        self,
        file: LogFile | MemoryFile,
        lock: AbstractContextManager[object],
        buffer: WriteBuffer,
        log_end_histories: LogEndHistories,
        *,
        max_consumers: int,
    ) -> None:
        self._file = file
        self._lock = lock
        self._buffer = buffer
        self._log_end_histories = log_end_histories
        self._log_id = file.log_id
        self._max_consumers = max_consumers
        self.trouble: str | None = None

    def commit(self, take: Take) -> None:
        """Run the jobs that ``take`` returns in one durable transaction. Raises `LogUnavailableError` if that fails.

        ``take`` is called as late as possible: once a job is taken, the answer "nothing was stored" is impossible.
        """
        with self._lock:
            try:
                self._file.follow()
                try:
                    self._transact(take)
                except apsw.FullError:
                    # Dropping events helps only if the log reached its own limit. On a full volume it would lose them
                    # for nothing.
                    if not near_its_cap(self._file.connection):
                        raise
                    self._transact_with_room(take)
                except (apsw.CorruptError, apsw.NotADBError) as error:
                    self._file.replace(str(error))
                    self._transact(take)
                except (TypeError, ValueError, OverflowError):
                    # One job has a value that cannot be written. Write the other jobs.
                    for job in take():
                        try:
                            self._transact(partial(list, [job]))
                        except (TypeError, ValueError, OverflowError) as error:
                            _log.exception("a write has a value that cannot be stored")
                            job.error = LogUnavailableError(f"cannot be written: {error}")
            except (apsw.Error, OSError) as error:
                raise self._refused(f"{type(error).__name__}: {error}") from error
            except LogUnavailableError as error:  # the file cannot be opened again, or a log in memory is damaged
                raise self._refused(str(error)) from error
            self.trouble = None

    def _refused(self, trouble: str) -> LogUnavailableError:
        self._file.distrust()
        self.trouble = trouble
        _log.warning("the event log refused a commit: %s", trouble)
        return LogUnavailableError(trouble)

    def _transact(self, take: Take) -> None:
        connection = self._file.connection
        pending = self._buffer.take()
        if self._log_id != self._file.log_id:
            self._log_id = self._file.log_id
            self._log_end_histories.forget()
        try:
            connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(connection, self._log_end_histories, max_consumers=self._max_consumers)
            jobs = take()
            for job in jobs:
                job.result = job.work(transaction)
            transaction.settle(pending, self._file.time.anchor())
            connection.execute("COMMIT")
        except BaseException:
            self._buffer.back(pending)
            self._log_end_histories.forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for job in jobs:
            job.stored = True

    def _transact_with_room(self, take: Take) -> None:
        """Drop the oldest events until the new ones fit. Raises SQLite's error if they never fit."""
        for _ in range(_ATTEMPTS):
            self._transact(lambda: [Job(Transaction.prune_oldest)])
            with contextlib.suppress(apsw.FullError):
                return self._transact(take)
        return self._transact(take)


class Writer:
    """Runs jobs in groups, by calls of ``commit(take)``.

    ``commit`` runs the jobs that ``take()`` returns; ``take()`` returns the same jobs on every call. ``commit`` returns
    when each job is durable or has its own error. Or it raises `LogUnavailableError`; then a job that is not ``stored``
    yet will never be stored. ``afterwards`` runs after every waiting call has its outcome, so no call waits for it.
    ``idle_work`` returns whether a commit without jobs is useful, because counters wait in memory.
    """

    def __init__(
        self,
        commit: Callable[[Take], None],
        *,
        afterwards: Callable[[], None],
        idle_work: Callable[[], bool],
        patience_s: float = 2.0,
    ) -> None:
        self._commit = commit
        self._afterwards = afterwards
        self._idle_work = idle_work
        self._patience_s = patience_s
        self._waiting: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._enough = 1
        self._thread = threading.Thread(target=self._run, name="karrot-writer", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[Transaction], T]) -> Job[T]:
        """Queue ``work`` for the next transaction. Raises `LogUnavailableError` after the writer was stopped."""
        job = Job(work, cancel=self._remove, patience_s=self._patience_s)
        with self._wake:
            if self._stopping:
                raise LogUnavailableError("the log is closed")
            self._waiting.append(job)
            if len(self._waiting) == self._enough:
                self._wake.notify()
        return job

    def submit(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in the next transaction and return its result once it is durable. Raises as `Job.wait`."""
        return self.begin(work).wait()

    def stop(self) -> None:
        """Commit the waiting jobs, then end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _remove(self, job: Job[Any]) -> bool:
        with self._wake:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
        return True

    def _run(self) -> None:
        company = 0
        while True:
            with self._wake:
                counts = False
                while not self._waiting and not self._stopping and not counts:
                    counts = not self._wake.wait(_TICK_S) and not self._waiting and self._idle_work()
                if not self._waiting and not counts:
                    return
                if company >= _GATHER_FROM and len(self._waiting) < company:
                    self._enough = company
                    self._wake.wait(_GATHER_S)
                    self._enough = 1
            taken: list[Job[Any]] = []
            try:
                self._commit(partial(self._take, taken))
                self._finish(taken)
                self._afterwards()
            except LogUnavailableError as error:
                self._finish(self._take(taken), error)
            except Exception as error:  # noqa: BLE001 - the outermost loop: without it every later append hangs
                _log.exception("a commit failed unexpectedly")
                self._finish(self._take(taken), LogUnavailableError(f"unexpected: {error}"))
                time.sleep(_TICK_S)  # an unknown fault will not pass at once
            company = len(taken)

    def _take(self, taken: list[Job[Any]]) -> list[Job[Any]]:
        """The waiting jobs; the same jobs on every call. A job that was taken can no longer be withdrawn."""
        if not taken:
            with self._wake:
                while self._waiting and len(taken) < _GROUP:
                    taken.append(self._waiting.popleft())
        return taken

    def _finish(self, jobs: Sequence[Job[Any]], error: Exception | None = None) -> None:
        for job in jobs:
            job.finish(error)


class InlineWriter:
    """Commits each piece of work immediately, in the caller's thread: a log in memory never waits for a disk."""

    def __init__(self, commit: Callable[[Take], None]) -> None:
        self._commit = commit

    def begin(self, work: Callable[[Transaction], T]) -> Job[T]:
        """Do the work. The returned job is finished."""
        job = Job(work)
        try:
            self._commit(lambda: [job])
        except LogUnavailableError as error:
            job.finish(error)
        else:
            job.finish()
        return job

    def submit(self, work: Callable[[Transaction], T]) -> T:
        """Do the work and return its result. Raises `LogUnavailableError`."""
        return self.begin(work).wait()
