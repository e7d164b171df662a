"""Lists the files of tables in S3, and copies the files that a query needs to this machine.

The pipeline replaces an object as a whole, so the ETag names a version of it. Karrot copies exactly the version that it
has listed (``If-Match``), and keeps the copy for later queries. The copies are in a temporary folder of the process.
"""

import fcntl
import os
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import date
from functools import partial
from hashlib import blake2b
from multiprocessing import TimeoutError  # noqa: A004 (that of a pool)
from multiprocessing.pool import AsyncResult, ThreadPool
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from karrot.history.answers_and_errors import HistoryFailed
from karrot.history.days_with_data import NOTE, day_of
from karrot.history.table_files_in_folder import FilesChanged, IsWanted, StoredFile, seconds_left, too_slow
from karrot.reporters.archive.s3 import explained
from karrot.reporters.archive.segment_store import StoreError
from karrot.settings.types import Bucket

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_T = TypeVar("_T")

_AT_ONCE: Final = 8
_MIB: Final = 1 << 20
_PREFIX: Final = "karrot-tables-"
_LOCK: Final = ".lock"
_STARTS_S: Final = 60
"""A folder younger than this may belong to a process that has not locked the folder yet."""

_LISTING_S: Final = 1.0


class _Object(NamedTuple):
    """An object in S3. ``name`` is its key without the prefix of the tables."""

    name: str
    etag: str
    size: int

    @property
    def is_data(self) -> bool:
        return self.name.endswith(".parquet") and all(part[:1] not in ("", ".", "_") for part in self.name.split("/"))


class TablesInS3:
    """Reads tables in S3, with requests in threads: a query ends at its time limit even if S3 is silent."""

    def __init__(self, bucket: Bucket, open_client: Callable[[], "S3Client"], *, most_bytes: int) -> None:
        self._bucket = bucket
        self._open_client = open_client
        self._opened: S3Client | None = None
        # A command ends without waiting for these threads, unlike those of concurrent.futures.
        self._asking_threads = ThreadPool(_AT_ONCE)
        self._copying_threads = ThreadPool(_AT_ONCE)  # a listing does not wait for copies
        self._copies = _Copies(most_bytes)
        self._copying: dict[str, AsyncResult[None]] = {}
        self._lock = threading.RLock()
        self._asking_threads.apply_async(self._connected)  # loading botocore takes longer than a listing
        self._listings: dict[str, tuple[float, list[_Object]]] = {}  # by table, with the time at which each began
        self._of_thread = threading.local()

    def __str__(self) -> str:
        return str(self._bucket)

    @property
    def root(self) -> Path:
        """The temporary folder with the copies."""
        return self._copies.root

    def exists(self, table: str = "") -> bool:
        return bool(self._listed(table and f"{table}/", 1))

    def days(self, table: str, wanted: IsWanted) -> tuple[date, ...]:
        return tuple(dict.fromkeys(file.day for file in self.files(table, wanted) if file.size))

    def files(self, table: str, wanted: IsWanted, *, now: bool = False) -> tuple[StoredFile, ...]:
        """The files of the wanted days, as they are ``now``, or as they were a second ago.

        The answer is never older than the last `note` that this thread has read.
        """
        found = []
        for each in self._objects(table, now=now):
            day = day_of(each.name.split("/")[1])
            if day is not None and each.is_data and wanted(day):
                version = blake2b(f"{each.name} {each.etag}".encode(), digest_size=16).hexdigest()
                found.append(StoredFile(day, str(self.root / f"{version}.parquet"), each.name, each.etag, each.size))
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
            except (FilesChanged, HistoryFailed):
                self._listings.clear()
                raise
            yield

    def note(self) -> bytes | None:
        def read() -> bytes:
            with self._asking(f"{self._bucket}/{NOTE} cannot be read"):
                found = self._connected().get_object(Bucket=self._bucket.name, Key=self._bucket.key(NOTE))
                return found["Body"].read()

        try:
            return self._result(self._asking_threads.apply_async(read))
        except FilesChanged:
            return None
        finally:
            self._of_thread.note_read = monotonic()

    def close(self) -> None:
        for threads in (self._asking_threads, self._copying_threads):
            threads.terminate()
        with self._lock:
            if self._opened is not None:
                self._opened.close()
        self._copies.close()

    def _objects(self, table: str, *, now: bool) -> list[_Object]:
        """List a table, or use the last listing. A page would otherwise list each table several times."""
        oldest = max(monotonic() - _LISTING_S, getattr(self._of_thread, "note_read", 0.0))
        began, objects = self._listings.get(table, (-1.0, []))
        if now or began < oldest:
            began, objects = self._listings[table] = monotonic(), self._listed(f"{table}/")
        return objects

    def _listed(self, under: str, limit: int | None = None) -> list[_Object]:
        def read() -> list[_Object]:
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

        return self._result(self._asking_threads.apply_async(read))

    def _copy(self, file: StoredFile) -> "AsyncResult[None]":
        """Start to copy a file, except if another query has started already."""
        with self._lock:
            if file.path not in self._copying:
                self._copies.use(file)
                self._copying[file.path] = self._copying_threads.apply_async(self._copy_now, (file,))
            return self._copying[file.path]

    def _copy_now(self, file: StoredFile) -> None:
        aside = Path(f"{file.path}.part")
        try:
            with self._asking(f"{self._bucket}/{file.name} cannot be read"):
                found = self._connected().get_object(
                    Bucket=self._bucket.name, Key=self._bucket.key(file.name), IfMatch=str(file.version)
                )
                with closing(found["Body"]) as body, aside.open("wb") as written:
                    for chunk in iter(partial(body.read, _MIB), b""):
                        try:
                            written.write(chunk)
                        except OSError as error:
                            message = f"{aside} cannot be written ({error.strerror})"
                            raise HistoryFailed("history_too_large", message) from error
            aside.rename(file.path)
        finally:
            aside.unlink(missing_ok=True)  # after an error, no limit would count the file
            with self._lock:
                del self._copying[file.path]
            self._copies.release(file)

    def _result(self, asked: "AsyncResult[_T]") -> _T:
        try:
            return asked.get(seconds_left())
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
            is_away = error.reason in {"unavailable", "throttled"}
            raise HistoryFailed("tables_unavailable" if is_away else "tables_refused", str(error)) from error


class _Copies:
    """The copies of one process, in a folder of limited size. The next process removes a folder that was left."""

    def __init__(self, most_bytes: int) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError), (left / _LOCK).open("r+") as held:
                if time() - left.stat().st_mtime > _STARTS_S:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left, ignore_errors=True)
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)  # also removed at exit
        self.root = Path(self._folder.name)
        self._held = (self.root / _LOCK).open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._most_bytes = most_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def used(self, files: tuple[StoredFile, ...], place: object) -> Iterator[None]:
        """Keep these files inside the block. Raises `HistoryFailed` if there is no room for them."""
        for file in files:
            self.use(file)
        try:
            if not self._make_room():
                needed, most = (f"{count / _MIB:,.0f} MiB" for count in (sum(f.size for f in files), self._most_bytes))
                message = f"{place} has {needed} of data for this answer: at most {most} are copied"
                raise HistoryFailed("history_too_large", message)
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
        """End one use of this file. Unused files can be removed."""
        with self._lock:
            self._uses[file.path] -= 1

    def close(self) -> None:
        self._folder.cleanup()
        self._held.close()

    def _make_room(self) -> bool:
        """Remove unused files, the least recently used first, until the other files fit. Return whether they fit."""
        with self._lock:
            rest = sum(self._sizes.values()) - self._most_bytes
            for path in [path for path in self._sizes if not self._uses[path]]:
                if rest <= 0:
                    break
                rest -= self._sizes.pop(path)
                del self._uses[path]
                Path(path).unlink(missing_ok=True)
            return rest <= 0
