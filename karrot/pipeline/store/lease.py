"""Lets only one command at a time write the same tables.

Each writer holds a lease while it writes: ``events`` (ingest, stream), ``offsets-<cluster>`` (offsets), ``derived``
(derive, compact) or ``evaluate-<cluster>`` (evaluate). So ``derive`` and ``compact`` may run next to a following
``ingest``, but not next to each other. A second writer waits, or ends with a message that names the holder. A dead
holder's lease ends without help.
"""

import os
import random
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Final
from urllib.parse import quote

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from karrot.clock import Clock, SystemClock
from karrot.pipeline.store.lease_locks import Holder, LeaseLock, lock_at
from karrot.pipeline.store.table_files import SOURCES, Tables
from karrot.pipeline.store.table_format import require_known_format
from karrot.settings.storage_place import shown

EVENTS: Final = "events"
"""The lease of the tables that ``ingest`` and ``stream`` write."""

DERIVED: Final = "derived"
"""The lease of the derived tables, and of merging and dropping days."""

LENGTH: Final = timedelta(seconds=60)
"""How long a lease lasts after its last renewal. A local lock has no such limit."""

_FOLDER: Final = "_leases"
_RENEW_EVERY: Final = LENGTH / 4
_LOOK_S: Final = 2.0

_held: Final[set["Lease"]] = set()


def offsets_lease(cluster: str) -> str:
    """The lease of a cluster's rows in the tables that ``offsets`` writes."""
    return f"offsets-{quote(cluster, safe='')}"


def evaluate_lease(cluster: str) -> str:
    """The lease of the verdicts on a cluster, and of the checkpoint of ``evaluate``."""
    return f"evaluate-{quote(cluster, safe='')}"


class LeaseHeld(RuntimeError):  # noqa: N818 (names the state of the tables)
    """Another command writes the same tables. The message names it and says what to do."""


class LeaseLost(RuntimeError):  # noqa: N818 (as above)
    """The lease ended while the command wrote, for example because the machine slept. The message says what to do."""


@dataclass(eq=False, slots=True)
class Lease:
    """A lease that this process holds. A thread renews it, and calls ``on_lost`` if that is not possible any more."""

    lock: LeaseLock
    holder: Holder
    place: str
    clock: Clock
    on_lost: Callable[[], object]
    renew_every: timedelta
    lost: str = ""
    _renewed_ms: int = 0
    _ends: Event = field(default_factory=Event)

    def require(self) -> None:
        """Raise LeaseLost if the lease was lost, or if it is too old to be sure."""
        if not self.lost and self._age_s() > self.holder.seconds and not self.lock.ends_with_process:
            self._lose(f"the lease of {self.place} was not renewed for {self._age_s():.0f} s")
        if self.lost:
            raise LeaseLost(f"{self.lost}; nothing more was written. Run the command again.")

    def take(self, *, wait: timedelta, stop: Event) -> None:
        """Take the lease, and wait for it if another command has it. Raises LeaseHeld."""
        until_ms, tries = self.clock.boot_ms() + wait.total_seconds() * 1000, 0
        while (other := self._taken_by()) is not None:
            # Two processes that tried at the same moment can both have failed, so each tries once more.
            tries += 1
            if stop.is_set() or (self.clock.boot_ms() >= until_ms and (tries > 1 or self.lock.ends_with_process)):
                raise LeaseHeld(self._refusal(other))
            stop.wait(_LOOK_S * random.uniform(0.2, 1.0))  # noqa: S311 (no secret)
        _held.add(self)
        Thread(target=self._renew, name="lease", daemon=True).start()

    def release(self) -> None:
        """Free the lease."""
        self._ends.set()
        _held.discard(self)
        if not self.lost:
            with suppress(OSError, Py4JError):  # the work is done, and the lease ends by itself
                self.lock.release(self.holder)

    def _taken_by(self) -> Holder | None:
        asked_ms = self.clock.boot_ms()
        other = self.lock.take(self.holder)
        self._renewed_ms = asked_ms
        return other

    def _renew(self) -> None:
        while not self._ends.wait(self.renew_every.total_seconds()) and not self.lost:
            asked_ms = self.clock.boot_ms()
            # After an error, the next try may succeed. `require` gives up when the lease is too old.
            with suppress(OSError, Py4JError):
                other = self.lock.renew(self.holder)
                if other is None:
                    self._renewed_ms = asked_ms
                elif not self._ends.is_set():
                    self._lose(f"{other} has taken the lease of {self.place}, because this command did not renew it")
            with suppress(LeaseLost):
                self.require()

    def _lose(self, why: str) -> None:
        self.lost = why
        self.on_lost()

    def _age_s(self) -> float:
        return (self.clock.boot_ms() - self._renewed_ms) / 1000

    def _refusal(self, other: Holder) -> str:
        text = f"{self.place}: {other} is writing these tables, and two commands must not write the same tables. "
        text += "Wait for it with --wait 10m, or stop it."
        if self.lock.ends_with_process:
            return text
        return f"{text} If it is dead, its lease ends within {other.seconds:.0f} s."


@contextmanager
def writing(
    spark: SparkSession,
    tables: Tables,
    name: str,
    command: str,
    *,
    wait: timedelta | None = None,
    length: timedelta = LENGTH,
    renew_every: timedelta = _RENEW_EVERY,
    clock: Clock | None = None,
    stop: Event | None = None,
) -> Iterator[Tables]:
    """Hold a lease, and yield tables that can be written as long as the lease lasts.

    If the tables have a lease already, both must last. First, this deletes what killed runs left. Raises LeaseHeld,
    LeaseLost, NewerTables, OSError and Py4JJavaError.
    """
    require_known_format(spark, tables)
    clock = clock or SystemClock()
    since = f"{datetime.fromtimestamp(clock.wall_ms() / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    holder = Holder(command, socket.gethostname(), os.getpid(), since, uuid.uuid4().hex, length.total_seconds())
    lock = lock_at(spark, tables.path(_FOLDER), name)
    lease = Lease(
        lock, holder, shown(tables.directory), clock, on_lost=spark.sparkContext.cancelAllJobs, renew_every=renew_every
    )
    lease.take(wait=wait or timedelta(0), stop=stop or Event())
    try:
        _sweep(spark, tables, name)
        yield replace(tables, require=lambda: [each() for each in (tables.require, lease.require)])
    except Exception as error:
        if lease.lost:
            raise LeaseLost(f"{lease.lost}. Run the command again.") from error
        raise
    finally:
        lease.release()


def release_all() -> None:
    """Free the leases of this process, before it ends in the middle of a job.

    A lock of the kernel ends with the process, and that of its JVM when the JVM has ended its writes.
    """
    for lease in [*_held]:
        if not lease.lock.ends_with_process:
            lease.release()


def _sweep(spark: SparkSession, tables: Tables, name: str) -> None:
    if name == DERIVED:
        tables.sweep_staging(spark)
    if name == EVENTS:
        tables.sweep_batches(spark, SOURCES)
