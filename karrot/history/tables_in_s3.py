"""Lists the files of tables in S3, and copies the files that a query needs to this machine.

The pipeline replaces an object as a whole, so the ETag names a version of it. Karrot copies exactly the version that it
has listed (``If-Match``), and keeps the copy for later queries. The copies are in a temporary folder of the process.
"""

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from hashlib import blake2b
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from karrot.history.held_days import NOTE, day_of
from karrot.history.results import AnswerTooLarge, TablesRefused, TablesUnavailable
from karrot.history.stored_tables import FilesChanged, IsWanted, StoredFile, seconds_left, too_slow
from karrot.reporters.archive.s3 import explained
from karrot.reporters.archive.segment_store import StoreError
from karrot.settings.types import Bucket

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_T = TypeVar("_T")


class DaemonThreads:
    """Runs at most ``most`` calls at once. The threads start when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], object]] | None] = SimpleQueue()
        self._threads = 0
        self._is_closed = False
        self._lock = Lock()

    def submit(self, call: Callable[[], _T]) -> "Future[_T]":
        """Queue a call. After `close`, it is cancelled."""
        future: Future[_T] = Future()
        with self._lock:
            if self._is_closed:
                future.cancel()
                return future
            self._calls.put((future, call))
            if self._threads < self._most:
                Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
                self._threads += 1
        return future

    def close(self) -> None:
        """Cancel the queued calls. The threads end after the calls that they run."""
        with self._lock:
            self._is_closed = True
            with suppress(Empty):
                while True:
                    if queued := self._calls.get_nowait():
                        queued[0].cancel()
            for _ in range(self._threads):
                self._calls.put(None)

    def _work(self) -> None:
        while (queued := self._calls.get()) is not None:
            future, call = queued
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 (the reader of the result gets the error)
                    future.set_exception(error)
            del queued, future, call  # an idle thread must not keep a result


_AT_ONCE: Final = 8
_CHUNK: Final = 1 << 20
_MIB: Final = 1 << 20
_PREFIX: Final = "karrot-tables-"
_LOCK: Final = ".lock"
_STARTS_S: Final = 60
"""A younger folder may be of a process that has not locked it yet."""

_LISTING_S: Final = 1.0
_AWAY: Final = frozenset({"unavailable", "throttled"})


class _Object(NamedTuple):
    """An object in S3. ``name`` is its key without the prefix of the tables."""

    name: str
    etag: str
    size: int

    @property
    def is_data(self) -> bool:
        return self.name.endswith(".parquet") and all(part[:1] not in ("", ".", "_") for part in self.name.split("/"))


class _Listing(NamedTuple):
    """The objects of a table. ``began`` is the time at which the listing began."""

    began: float
    objects: list[_Object]


class TablesInS3:
    """Reads tables in S3, with requests in threads: a query ends at its time limit even if S3 is silent."""

    def __init__(self, bucket: Bucket, open_client: Callable[[], "S3Client"], *, most_bytes: int) -> None:
        self._bucket = bucket
        self._open_client = open_client
        self._opened: S3Client | None = None
        self._asking_pool = DaemonThreads(_AT_ONCE, "karrot-tables-in-s3")
        self._copying_pool = DaemonThreads(_AT_ONCE, "karrot-copies-of-s3")  # a listing does not wait for copies
        self._copies = _Copies(most_bytes)
        self._copying: dict[str, Future[None]] = {}
        self._lock = threading.RLock()
        self._asking_pool.submit(self._connected)  # loading botocore takes longer than a listing
        self._listings: dict[str, _Listing] = {}
        self._of_thread = threading.local()

    def __str__(self) -> str:
        return str(self._bucket)

    @property
    def root(self) -> Path:
        """The temporary folder with the copies."""
        return self._copies.root

    def exists(self) -> bool:
        return bool(self._listed("", 1))

    def has_table(self, table: str) -> bool:
        return bool(self._listed(f"{table}/", 1))

    def has_files(self, table: str) -> bool:
        return any(each.is_data for each in self._listed(f"{table}/"))

    def days(self, table: str, wanted: IsWanted) -> tuple[date, ...]:
        return tuple(dict.fromkeys(file.day for file in self.files(table, wanted) if file.size))

    def files(self, table: str, wanted: IsWanted, *, now: bool = False) -> tuple[StoredFile, ...]:
        found = []
        for each in self._objects(table, now=now):
            day = day_of(each.name.split("/")[1])
            if day is not None and each.is_data and wanted(day):
                version = blake2b(f"{each.name} {each.etag}".encode(), digest_size=16).hexdigest()
                path = self.root / table / f"day={day}" / f"{version}.parquet"
                found.append(StoredFile(day, str(path), each.name, each.etag, each.size))
        return tuple(found)

    @contextmanager
    def at_hand(self, files: Iterable[StoredFile]) -> Iterator[None]:
        """Copy the files that have no copy yet, and keep all copies inside the ``with`` block."""
        needed = tuple(files)
        with self._copies.used(needed, self._bucket):
            copying = [self._copy(file) for file in needed if not os.path.exists(file.path)]  # noqa: PTH110 (a string)
            try:
                for each in copying:
                    self._result(each)
            except (AnswerTooLarge, FilesChanged, TablesRefused, TablesUnavailable):
                self._listings.clear()
                for each in copying:
                    each.cancel()
                raise
            yield

    def note(self) -> bytes | None:
        try:
            return self._result(self._asking_pool.submit(lambda: self._read(NOTE)))
        except FilesChanged:
            return None
        finally:
            self._of_thread.note_read = monotonic()

    def close(self) -> None:
        for pool in (self._asking_pool, self._copying_pool):
            pool.close()
        with self._lock:
            if self._opened is not None:
                self._opened.close()
        self._copies.close()

    def _objects(self, table: str, *, now: bool) -> list[_Object]:
        """List a table, or use the last listing. A page would otherwise list each table several times."""
        oldest = max(monotonic() - _LISTING_S, getattr(self._of_thread, "note_read", 0.0))
        known = self._listings.get(table)
        if known is None or now or known.began < oldest:
            known = self._listings[table] = _Listing(monotonic(), self._listed(f"{table}/"))
        return known.objects

    def _listed(self, under: str, limit: int | None = None) -> list[_Object]:
        return self._result(self._asking_pool.submit(lambda: self._list(under, limit)))

    def _list(self, under: str, limit: int | None) -> list[_Object]:
        start = len(self._bucket.key(""))
        with self._asking(f"{self._bucket} cannot be listed"):
            pages = (
                self._connected()
                .get_paginator("list_objects_v2")
                .paginate(
                    Bucket=self._bucket.name,
                    Prefix=self._bucket.key(under),
                    PaginationConfig={} if limit is None else {"MaxItems": limit},
                )
            )
            found = (each for page in pages for each in page.get("Contents", ()))
            return [_Object(each["Key"][start:], each["ETag"], each["Size"]) for each in found]

    def _read(self, name: str) -> bytes:
        with self._asking(f"{self._bucket}/{name} cannot be read"):
            found = self._connected().get_object(Bucket=self._bucket.name, Key=self._bucket.key(name))
            return found["Body"].read()

    def _copy(self, file: StoredFile) -> Future[None]:
        """Start to copy a file, except if another query has started already."""
        with self._lock:
            known = self._copying.get(file.path)
            if known is not None:
                return known
            self._copies.use(file)
            started = self._copying[file.path] = self._copying_pool.submit(lambda: self._copy_now(file))
            started.add_done_callback(lambda _copied: self._copied(file))
            return started

    def _copy_now(self, file: StoredFile) -> None:
        path, aside = Path(file.path), Path(f"{file.path}.part")
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(exist_ok=True)  # an error after `close`, which has removed the root
        try:
            with self._asking(f"{self._bucket}/{file.name} cannot be read"):
                found = self._connected().get_object(
                    Bucket=self._bucket.name, Key=self._bucket.key(file.name), IfMatch=str(file.version)
                )
                self._copies.write(aside, iter(partial(found["Body"].read, _CHUNK), b""))
            aside.rename(path)
        finally:
            aside.unlink(missing_ok=True)  # after an error, it would count against no limit

    def _copied(self, file: StoredFile) -> None:
        with self._lock:
            self._copying.pop(file.path, None)
        self._copies.release(file)

    def _result(self, asked: "Future[_T]") -> _T:
        try:
            return asked.result(seconds_left())
        except CancelledError as error:
            raise FilesChanged from error
        except TimeoutError as error:
            raise too_slow(self._bucket) from error

    def _connected(self) -> "S3Client":
        with self._lock:
            if self._opened is None:
                self._opened = self._open_client()
            return self._opened

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise the errors of S3 as a `HistoryError`, and as `FilesChanged` if the object has changed or is gone."""
        try:
            with explained(what, {"NoSuchKey": FilesChanged, "PreconditionFailed": FilesChanged}):
                yield
        except StoreError as error:
            with self._lock:
                self._opened = None  # a new client reads the credentials again
            raise (TablesUnavailable if error.reason in _AWAY else TablesRefused)(str(error)) from error


class _Copies:
    """The copies of one process, in a folder of limited size. The next process removes one that was left."""

    def __init__(self, most_bytes: int) -> None:
        _remove_left_folders()
        self.root = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._held = (self.root / _LOCK).open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._removed = weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)  # also at exit
        self._most_bytes = most_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def used(self, files: tuple[StoredFile, ...], place: object) -> Iterator[None]:
        """Keep these files inside the block. Raises `AnswerTooLarge` if there is no room for them."""
        for file in files:
            self.use(file)
        try:
            if not self._make_room():
                needed, most = (f"{count / _MIB:,.0f} MiB" for count in (sum(f.size for f in files), self._most_bytes))
                raise AnswerTooLarge(f"{place} has {needed} of data for this answer: at most {most} are copied")
            yield
        finally:
            for file in files:
                self.release(file)

    def use(self, file: StoredFile) -> None:
        """Keep this file until `release`."""
        with self._lock:
            self._uses[file.path] += 1
            self._sizes[file.path] = file.size
            self._sizes.move_to_end(file.path)

    def release(self, file: StoredFile) -> None:
        """The file may make room for others."""
        with self._lock:
            self._uses[file.path] -= 1

    def write(self, path: Path, chunks: Iterable[bytes]) -> None:
        """Write a file. Raises `AnswerTooLarge` if the disk is full."""
        with path.open("wb") as file:
            for chunk in chunks:
                try:
                    file.write(chunk)
                except OSError as error:
                    raise AnswerTooLarge(f"{path} cannot be written ({error.strerror})") from error

    def close(self) -> None:
        self._removed()
        self._held.close()

    def _make_room(self) -> bool:
        with self._lock:
            rest = sum(self._sizes.values()) - self._most_bytes
            for path in [path for path in self._sizes if not self._uses[path]]:
                if rest <= 0:
                    break
                rest -= self._sizes.pop(path)
                del self._uses[path]
                Path(path).unlink(missing_ok=True)
            return rest <= 0


def _remove_left_folders() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            held = (folder / _LOCK).open("r+")
            with held:
                if time() - folder.stat().st_mtime > _STARTS_S:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
