"""Lets only one command at a time write the same tables.

Each writer holds a lease while it writes: ``events`` (events), ``offsets-<cluster>`` (offsets) or ``derived`` (derive,
compact). So ``derive`` and ``compact`` may run next to ``events``, but not next to each other. A second writer waits,
or ends with a message that names the holder. A dead holder's lease ends by itself.
"""

import os
import random
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final
from urllib.parse import quote

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from karrot.clock import Clock, SystemClock
from karrot.eventlog.locks import FileLock
from karrot.pipeline.store.hadoop_filesystem import create_new, delete, listing, local_path, modified_ms, read_text
from karrot.pipeline.store.table_files import Tables, require_known_format
from karrot.settings.types import s3_url

_TRIES = 20


class Holder(msgspec.Struct, frozen=True):
    """The holder of a lease. ``seconds`` is the length of the lease. ``is_free`` means that the holder ended."""

    command: str = "another command"
    host: str = ""
    pid: int = 0
    since: str = ""
    token: str = ""
    seconds: float = 60
    is_free: bool = False

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid} on {self.host}, since {self.since})" if self.host else self.command


class KernelLock:
    """An exclusive lock (flock) on a local file, which names the holder. The file stays.

    The kernel frees the lock when the process ends, even after a crash. The JVM of a killed command lives for some more
    seconds, but only the process itself commits to the tables, and each start writes its state into folders of its own.
    """

    ends_with_process = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: FileLock | None = None

    def take(self, holder: Holder) -> Holder | None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._path)
        if not lock.try_acquire():
            lock.close()
            return _holder_of(self._path.read_text(encoding="utf-8"))
        self._lock = lock
        try:
            self._path.write_bytes(msgspec.json.encode(holder))
        except OSError:  # the disk is full
            self.release(holder)
            raise
        return None

    def renew(self, holder: Holder) -> Holder | None:  # noqa: ARG002 (the kernel keeps the lock)
        """Do nothing: the kernel keeps the lock as long as the process lives."""
        return None

    def release(self, holder: Holder) -> None:  # noqa: ARG002 (the file is the holder's)
        if self._lock is not None:
            self._path.write_text("")
            self._lock.close()
            self._lock = None


class NumberedFiles:
    """The lease on S3, HDFS and other file systems of Hadoop: ``<name>-<number>.json`` names the holder.

    Each change makes the file with the next number, which must not exist yet (S3: a PUT with ``If-None-Match``; HDFS:
    an exclusive create). So only one of several processes makes a change, and the file with the highest number is
    valid. The holder renews the lease in this way. If the newest file is older than the lease's length, the holder is
    dead, and any process may take the lease. The age is the difference of two times of the store, so the clocks of the
    machines do not matter.
    """

    ends_with_process = False

    def __init__(self, spark: SparkSession, directory: str, name: str) -> None:
        self._spark, self._directory, self._name = spark, directory, name
        self._one_change_at_a_time = Lock()

    def take(self, holder: Holder) -> Holder | None:
        return self._change(holder, may=lambda number, found: found.is_free or self._is_dead(number, found))

    def renew(self, holder: Holder) -> Holder | None:
        """Make the next file. If another process has made it, the lease is lost."""
        return self._change(holder, may=lambda _number, found: found == holder)

    def release(self, holder: Holder) -> None:
        self._change(msgspec.structs.replace(holder, is_free=True), may=lambda _number, found: found == holder)

    def _change(self, holder: Holder, *, may: Callable[[int, Holder], bool]) -> Holder | None:
        with self._one_change_at_a_time:
            number, found = self._newest()
            if number and not may(number, found):
                return found
            mine = number + 1
            try:
                create_new(self._spark, self._path(mine), msgspec.json.encode(holder).decode())
            except Py4JJavaError:
                # The file exists, or the store failed. After a retry, it can be ours although the store refused it.
                text = read_text(self._spark, self._path(mine))
                if text is None:
                    raise
                if (other := _holder_of(text)) != holder:
                    return other
            numbers = self._numbers()
            if numbers[-1] != mine:
                # Others made changes after `_newest`, and deleted the file with this number before it was made again.
                delete(self._spark, self._path(mine))
                return self._newest()[1]
            for old in numbers[:-1]:
                delete(self._spark, self._path(old))
            return None

    def _newest(self) -> tuple[int, Holder]:
        for _ in range(_TRIES):
            numbers = self._numbers()
            if not numbers:
                break
            text = read_text(self._spark, self._path(numbers[-1]))
            if text is not None:  # else the holder has just replaced the file
                return numbers[-1], _holder_of(text)
        return 0, Holder(is_free=True)

    def _is_dead(self, number: int, holder: Holder) -> bool:
        now = f"{self._directory}/.now-{uuid.uuid4().hex}"
        create_new(self._spark, now, "now")
        try:
            then_ms, now_ms = (modified_ms(self._spark, path) for path in (self._path(number), now))
        finally:
            delete(self._spark, now)
        return then_ms is not None and now_ms is not None and now_ms - then_ms > holder.seconds * 1000

    def _numbers(self) -> list[int]:
        before, after = f"{self._name}-", ".json"
        middles = (
            entry.removeprefix(before).removesuffix(after)
            for entry in listing(self._spark, self._directory)
            if entry.startswith(before) and entry.endswith(after)
        )
        return sorted(int(middle) for middle in middles if middle.isdecimal())

    def _path(self, number: int) -> str:
        return f"{self._directory}/{self._name}-{number:012d}.json"


def _holder_of(text: str) -> Holder:
    """Read a note of the holder. The text can be empty or incomplete while the holder writes it."""
    try:
        return msgspec.json.decode(text, type=Holder)
    except msgspec.DecodeError:
        return Holder()


LeaseLock = KernelLock | NumberedFiles
"""Keeps the lease of one kind of table. Every method may raise OSError or Py4JJavaError if the store fails.

``take`` and ``renew`` return ``None``, or the holder that has the lease. If the lock ``ends_with_process``, the lease
has no length and needs no renewal.
"""


EVENTS: Final = "events"
"""The lease of the tables that the step ``events`` writes."""

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


class LeaseHeld(RuntimeError):  # noqa: N818 (names the state of the tables)
    """Another command writes the same tables. The message names that command and says what to do."""


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
        """Raise LeaseLost if the lease was lost, or if its last renewal is too old."""
        if not self.lost and self._age_s() > self.holder.seconds and not self.lock.ends_with_process:
            self._lose(f"the lease of {self.place} was not renewed for {self._age_s():.0f} s")
        if self.lost:
            raise LeaseLost(f"{self.lost}; nothing more was written. Run the command again.")

    def take(self, *, wait: timedelta, stop: Event) -> None:
        """Take the lease, and wait for it if another command has it. Raises LeaseHeld."""
        until_ms, tries = self.clock.boot_ms() + wait.total_seconds() * 1000, 0
        while (other := self._taken_by()) is not None:
            # Two processes that tried at the same time can both have failed, so each tries once more.
            tries += 1
            if stop.is_set() or (self.clock.boot_ms() >= until_ms and (tries > 1 or self.lock.ends_with_process)):
                raise LeaseHeld(self._refusal(other))
            stop.wait(_LOOK_S * random.uniform(0.2, 1.0))  # noqa: S311 (no secret)
        _held.add(self)
        Thread(target=self._renew, name="lease", daemon=True).start()

    def release(self) -> None:
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
        ends = "" if self.lock.ends_with_process else f" If it is dead, its lease ends within {other.seconds:.0f} s."
        return text + ends


@contextmanager
def writing(
    spark: SparkSession,
    tables: Tables,
    name: str,
    command: str,
    *,
    wait: timedelta | None = None,
    renew_every: timedelta = _RENEW_EVERY,
    clock: Clock | None = None,
    stop: Event | None = None,
) -> Iterator[Tables]:
    """Hold a lease, and yield tables that can be written as long as the lease lasts.

    If the tables have a lease already, both leases must last. Raises LeaseHeld, LeaseLost, OtherFormat, OSError and
    Py4JJavaError.
    """
    require_known_format(spark, tables)
    clock = clock or SystemClock()
    since = f"{datetime.fromtimestamp(clock.wall_ms() / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    holder = Holder(command, socket.gethostname(), os.getpid(), since, uuid.uuid4().hex, LENGTH.total_seconds())
    directory = tables.path(_FOLDER)
    local = local_path(spark, directory)
    lock = NumberedFiles(spark, directory, name) if local is None else KernelLock(local / name)
    place, on_lost = s3_url(tables.directory), spark.sparkContext.cancelAllJobs
    lease = Lease(lock, holder, place, clock, on_lost, renew_every)
    lease.take(wait=wait or timedelta(0), stop=stop or Event())
    try:
        yield replace(tables, require=lambda: [each() for each in (tables.require, lease.require)])
    except Exception as error:
        if lease.lost:
            raise LeaseLost(f"{lease.lost}. Run the command again.") from error
        raise
    finally:
        lease.release()


def release_all() -> None:
    """Free the leases of this process, before it ends in the middle of a job. A kernel lock ends with the process."""
    for lease in [*_held]:
        if not lease.lock.ends_with_process:
            lease.release()
