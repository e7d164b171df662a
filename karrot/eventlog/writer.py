"""Gathers waiting writes into groups and commits each group in one transaction, in a thread.

All writes that arrive during one commit share the flush of the next commit. Counter increments and refused bodies wait
in bounded memory until the next commit. Adding an increment or a body never blocks for long.
"""

import threading
import time
from collections import Counter as Sums
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import structlog

from karrot.eventlog.base import (
    TURN_SHARE,
    Counter,
    LogUnavailableError,
    OverloadedError,
    Reject,
    UnconfirmedError,
)

KEPT_REJECTS = 1000
"""The most refused bodies that are kept in memory, and in a log. Beyond this number, the oldest are dropped."""

CounterKey = tuple[str, tuple[tuple[str, str], ...]]
"""A counter's name and its labels, sorted."""

T = TypeVar("T")
_GROUP = 256
_TICK_S = 1.0
_GATHER_S = 0.001
"""A commit waits at most this long for as many jobs as the previous one had. Under load, most cost is per commit."""

STALLED_S = 5.0
"""If a turn of the writer (a commit with its checkpoint) takes longer, the log is not writable. Clients wait 2 s."""

_GATHER_FROM = 5
"""If the previous commit had fewer jobs, the load is low, and a wait would only delay the answers."""

_log = structlog.get_logger(__name__)


class Job(Generic[T]):
    """One piece of work for a transaction, such as an append. The caller of `Writer.begin` can wait for it.

    ``work`` is called with the store's open transaction. ``stored`` is set once the transaction with the work is
    durable. ``cancel(job)`` removes the job from the queue and returns whether the queue had the job. A job that is in
    no queue cannot be cancelled.
    """

    __slots__ = ("_calls", "_cancel", "_finished", "_patience_s", "error", "result", "stored", "work")
    result: T

    def __init__(
        self,
        work: Callable[[Any], T],
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
        """Set the outcome and run the waiting calls. A stored job has no error, even if a later step failed."""
        self.error = None if self.stored else self.error or error
        self._finished = True
        self._call()

    def when_done(self, call: Callable[[], object]) -> None:
        """Run ``call`` once: in the thread that finishes the job, or immediately if the job is finished."""
        self._calls.append(call)
        if self._finished:
            self._call()

    def withdraw(self) -> bool:
        return self._cancel(self)

    def wait(self) -> T:
        """Wait until the work is durable and return its result.

        Raises `OverloadedError` if no transaction took the job in time (and no later one will), `LogUnavailableError`
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


class Writer:
    """Runs jobs in groups, by calls of ``commit(take)``.

    ``commit`` runs the jobs that ``take()`` returns; ``take()`` returns the same jobs on every call. ``commit`` returns
    when each job is durable or has its own error. If ``commit`` raises `LogUnavailableError`, a job that is not
    ``stored`` yet will never be stored. ``afterwards`` runs after every waiting call has its outcome, so no call waits
    for it. ``idle_work`` returns whether a commit without jobs is useful, because counters wait in memory.
    """

    def __init__(
        self,
        commit: Callable[[Take], None],
        *,
        afterwards: Callable[[], None],
        idle_work: Callable[[], bool],
        patience_s: float = 2.0,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._commit = commit
        self._seconds = seconds
        self._afterwards = afterwards
        self._idle_work = idle_work
        self._patience_s = patience_s
        self._waiting: deque[Job[Any]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._enough = 1
        self._turn_began_s: float | None = None
        self._last_turn_s = 0.0
        self._thread = threading.Thread(target=self._run, name="karrot-writer", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[Any], T]) -> Job[T]:
        """Queue ``work`` for the next transaction. Raises `LogUnavailableError` after the writer was stopped."""
        job = Job(work, cancel=self._remove, patience_s=self._patience_s)
        with self._wake:
            if self._stopping:
                raise LogUnavailableError("the log is closed")
            self._waiting.append(job)
            if len(self._waiting) == self._enough:
                self._wake.notify()
        return job

    def stalled(self) -> str | None:
        """Why no commit ends in time, if this turn or the last takes longer than `STALLED_S`; else ``None``."""
        began_s = self._turn_began_s
        waited_s = max(self._last_turn_s, 0.0 if began_s is None else self._seconds() - began_s)
        return f"a commit has waited for {waited_s:.0f} s: the storage hangs" if waited_s > STALLED_S else None

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
        previous_jobs = 0
        while True:
            with self._wake:
                counts = False
                while not self._waiting and not self._stopping and not counts:
                    is_quiet = not self._wake.wait(_TICK_S) and not self._waiting
                    # After a slow turn, only another turn can show whether the storage is well again.
                    counts = is_quiet and (self._last_turn_s > STALLED_S or self._idle_work())
                if not self._waiting and not counts:
                    return
                if previous_jobs >= _GATHER_FROM and len(self._waiting) < previous_jobs:
                    self._enough = previous_jobs
                    self._wake.wait(_GATHER_S)
                    self._enough = 1
            taken: list[Job[Any]] = []
            self._turn_began_s = self._seconds()
            try:
                self._commit(partial(self._take, taken))
                self._finish(taken)
                self._afterwards()
            except LogUnavailableError as error:
                self._finish(self._take(taken), error)
            except Exception as error:  # noqa: BLE001 - the outermost loop: without it every later append hangs
                _log.exception("a commit failed unexpectedly", code="commit_failed")
                self._finish(self._take(taken), LogUnavailableError(f"unexpected: {error}"))
                time.sleep(_TICK_S)  # an unknown fault will not pass at once
            self._last_turn_s, self._turn_began_s = self._seconds() - self._turn_began_s, None
            previous_jobs = len(taken)

    def _take(self, taken: list[Job[Any]]) -> list[Job[Any]]:
        """Move the waiting jobs to ``taken``, if it is empty, and return ``taken``. A taken job cannot be withdrawn."""
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

    def begin(self, work: Callable[[Any], T]) -> Job[T]:
        job, refused = Job(work), None
        try:
            self._commit(lambda: [job])
        except LogUnavailableError as error:
            refused = error
        job.finish(refused)
        return job

    def stalled(self) -> str | None:
        return None


class PendingWrites(NamedTuple):
    """The counter increments and rejects that one commit takes out of the buffer."""

    counts: dict[CounterKey, float]
    rejects: list[Reject]


class WriteBuffer:
    """Counter increments and rejects of this process that are not committed yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[CounterKey, float] = {}
        self._counts: Sums[CounterKey] = Sums()
        self._rejects: deque[Reject] = deque(maxlen=KEPT_REJECTS)

    def count(self, name: str, by: float, labels: dict[str, str]) -> None:
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] += by  # type: ignore[assignment]  # typeshed: a Counter counts in int

    def reject(self, reject: Reject) -> None:
        with self._lock:
            self._rejects.append(reject)

    def take(self) -> PendingWrites:
        """Take everything out of the buffer. The caller commits it, or puts it back with `back`."""
        with self._lock:
            taken = PendingWrites(dict(self._counts), list(self._rejects))
            self._counts.clear()
            self._rejects.clear()
        return taken

    def back(self, pending: PendingWrites) -> None:
        """Put back writes that could not be committed, for the next commit."""
        with self._lock:
            for key, by in pending.counts.items():
                self._counts[key] += by  # type: ignore[assignment]
            later = list(self._rejects)
            self._rejects.clear()
            self._rejects.extend([*pending.rejects, *later])

    def start_sums_again(self) -> None:
        """Let the sums decrease once, for another log."""
        with self._lock:
            self._shown.clear()

    def counters(self, stored: Mapping[CounterKey, float]) -> list[Counter]:
        """Add the increments in memory to the stored counters.

        A sum never decreases, although some increments are in neither buffer nor log during a commit, and a log that
        lost its newest events lost increments too.
        """
        with self._lock:
            for key in {*stored, *self._counts}:
                value = stored.get(key, 0) + self._counts.get(key, 0)
                self._shown[key] = max(value, self._shown.get(key, value))
            return [Counter(*key, value) for key, value in sorted(self._shown.items())]

    def rejects(self) -> list[Reject]:
        with self._lock:
            return list(self._rejects)

    def __bool__(self) -> bool:
        return bool(self._counts or self._rejects)
