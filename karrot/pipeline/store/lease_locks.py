"""Holds the lease of a kind of table for one process: a lock on a local disk, or numbered files on other file systems.

On a local disk, the kernel frees the lock when the process ends, however it ends. The JVM holds a second lock, because
the JVM of a killed command lives for some more seconds and can finish a write in this time. It has a file of its own:
on NFS, the locks of Python and of Java on the same file exclude each other.

On S3 and HDFS, ``<name>-<number>.json`` names the holder. Each change makes the file with the next number, which must
not exist yet (S3: a PUT with ``If-None-Match``; HDFS: an exclusive create). So only one of several processes makes a
change, and the highest number is the truth. The holder renews the lease in this way. If the newest file is older than
the lease's length, the holder is dead, and any process may take the lease. The age is the difference of two times of
the store, so the clocks of the machines do not matter.
"""

import fcntl
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, cast

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from karrot.pipeline.store.filesystem import (
    create_new,
    delete,
    listing,
    local_path,
    modified_ms,
    read_text,
)

_TRIES = 20


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lease. ``seconds`` is the length of the lease. A holder that ended leaves a note that is free."""

    command: str = "another command"
    host: str = ""
    pid: int = 0
    since: str = ""
    token: str = ""
    seconds: float = 60
    is_free: bool = False

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid} on {self.host}, since {self.since})" if self.host else self.command


class LeaseLock(Protocol):
    """Keeps the lease of one kind of table. Every method may raise OSError or Py4JJavaError if the store fails.

    If the lock ``ends_with_process``, the lease has no length and needs no renewal.
    """

    ends_with_process: bool

    def take(self, holder: Holder) -> Holder | None:
        """Take the lease and return ``None``, or return the holder that has it."""

    def renew(self, holder: Holder) -> Holder | None:
        """Extend the lease and return ``None``, or return the holder that has taken it."""

    def release(self, holder: Holder) -> None:
        """Free the lease, if ``holder`` still has it."""


def lock_at(spark: SparkSession, directory: str, name: str) -> LeaseLock:
    """The lock for a name in a directory."""
    local = local_path(spark, directory)
    return NumberedFiles(spark, directory, name) if local is None else KernelLock(local / name, spark)


class KernelLock:
    """An exclusive lock (flock) on a local file, which names the holder. The file stays.

    With ``spark``, its JVM locks another file next to it.
    """

    ends_with_process = True

    def __init__(self, path: Path, spark: SparkSession | None = None) -> None:
        self._path, self._spark = path, spark
        self._file: int | None = None
        self._of_jvm: Any = None

    def take(self, holder: Holder) -> Holder | None:
        """Take the lock, or return the holder."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return _holder_of(self._path.read_text(encoding="utf-8"))
        except OSError:
            os.close(file)
            raise
        if self._spark is not None and not self._locked_by(self._spark):
            other = _holder_of(self._path.read_text(encoding="utf-8"))
            os.close(file)
            return other
        self._file = file
        os.ftruncate(file, 0)
        os.pwrite(file, msgspec.json.encode(holder), 0)
        return None

    def renew(self, holder: Holder) -> Holder | None:  # noqa: ARG002 (the kernel keeps the lock)
        """The kernel keeps the lock as long as the process lives."""
        return None

    def release(self, holder: Holder) -> None:  # noqa: ARG002 (the file is the holder's)
        """Free the lock."""
        if self._of_jvm is not None:
            self._of_jvm.close()
            self._of_jvm = None
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def _locked_by(self, spark: SparkSession) -> bool:
        channel = cast("Any", spark.sparkContext._jvm).java.io.RandomAccessFile(f"{self._path}.jvm", "rw").getChannel()  # noqa: SLF001 (pyspark has no other way to the JVM)
        if channel.tryLock() is None:
            channel.close()
            return False
        self._of_jvm = channel
        return True


class _Newest(NamedTuple):
    number: int
    holder: Holder


class NumberedFiles:
    """The lease on a file system of Hadoop, as the module says."""

    ends_with_process = False

    def __init__(self, spark: SparkSession, directory: str, name: str) -> None:
        self._spark, self._directory, self._name = spark, directory, name
        self._one_change_at_a_time = Lock()

    def take(self, holder: Holder) -> Holder | None:
        """Take the lease if nobody has it or if its holder is dead."""
        return self._change(holder, may=lambda newest: newest.holder.is_free or self._is_dead(newest))

    def renew(self, holder: Holder) -> Holder | None:
        """Make the next file. If another process has made it, the lease is lost."""
        return self._change(holder, may=lambda newest: newest.holder == holder)

    def release(self, holder: Holder) -> None:
        """Make the next file, which says that the lease is free."""
        self._change(replace(holder, is_free=True), may=lambda newest: newest.holder == holder)

    def _change(self, holder: Holder, *, may: Callable[[_Newest], bool]) -> Holder | None:
        with self._one_change_at_a_time:
            return self._changed(holder, may)

    def _changed(self, holder: Holder, may: Callable[[_Newest], bool]) -> Holder | None:
        newest = self._newest()
        if newest.number and not may(newest):
            return newest.holder
        mine = newest.number + 1
        try:
            create_new(self._spark, self._path(mine), msgspec.json.encode(holder).decode())
        except Py4JJavaError:
            # The file exists, or the store failed. After a retry, the file can be ours although the store refused it.
            found = read_text(self._spark, self._path(mine))
            if found is None:
                raise
            if (other := _holder_of(found)) != holder:
                return other
        numbers = self._numbers()
        if numbers[-1] != mine:
            # Others made changes after `_newest`, and deleted the file with this number before it was made again.
            delete(self._spark, self._path(mine))
            return self._newest().holder
        for number in numbers[:-1]:
            delete(self._spark, self._path(number))
        return None

    def _newest(self) -> _Newest:
        for _ in range(_TRIES):
            numbers = self._numbers()
            if not numbers:
                break
            text = read_text(self._spark, self._path(numbers[-1]))
            if text is not None:  # else the holder has just replaced the file
                return _Newest(numbers[-1], _holder_of(text))
        return _Newest(0, Holder(is_free=True))

    def _is_dead(self, newest: _Newest) -> bool:
        now = f"{self._directory}/.now-{uuid.uuid4().hex}"
        create_new(self._spark, now, "now")
        try:
            then_ms, now_ms = (modified_ms(self._spark, path) for path in (self._path(newest.number), now))
        finally:
            delete(self._spark, now)
        return then_ms is not None and now_ms is not None and now_ms - then_ms > newest.holder.seconds * 1000

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
