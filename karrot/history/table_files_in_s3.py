"""Lists the data files of tables in S3, and copies the files that a query needs to this machine.

A data file never changes, so Karrot keeps its copy for later queries. The copies are in a temporary folder of the
process.
"""

import fcntl
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from multiprocessing import TimeoutError  # noqa: A004 (that of a pool)
from multiprocessing.pool import AsyncResult, ThreadPool
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from karrot.history.answers_and_errors import HistoryFailed
from karrot.history.days_with_data import NOTE
from karrot.history.delta_tables import DataFile, forget_credentials, s3_options, why
from karrot.history.table_files_in_folder import FileGone, StoredFile, listed, seconds_left, too_slow
from karrot.reporters.archive.s3 import explained
from karrot.reporters.archive.segment_store import StoreError
from karrot.settings.types import Bucket

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

    from karrot.runbooks_and_remedies import TablesProblem

_T = TypeVar("_T")

_AT_ONCE: Final = 8
_MIB: Final = 1 << 20
_PREFIX: Final = "karrot-tables-"
_LOCK: Final = ".lock"
_STARTS_S: Final = 60
"""A folder younger than this may belong to a process that has not locked the folder yet."""

_KEPT_S: Final = 60.0
"""How long the listing of a version is kept. The version has other files only if the whole table was made again."""
_REFUSED: Final = ("lacked the necessary privileges", "401 Unauthorized", "403 Forbidden")
"""How deltalake's message says that S3 refuses a request."""


class _Copy:
    """A copy of a file. It is complete if its job was successful, and it can be removed if nothing uses it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.uses = 0
        self.job: AsyncResult[None] | None = None


class TablesInS3:
    """Reads tables in S3, with requests in threads: a query ends at its time limit even if S3 is silent.

    Together, the copies have at most ``most_bytes``.
    """

    def __init__(self, bucket: Bucket, open_client: Callable[[], "S3Client"], *, most_bytes: int) -> None:
        self._bucket = bucket
        self._open_client = open_client
        self._opened: S3Client | None = None
        self._opening = threading.Lock()  # opening a client can take seconds
        # A command ends without waiting for these threads, unlike those of concurrent.futures.
        self._asking_threads = ThreadPool(_AT_ONCE)
        self._copying_threads = ThreadPool(_AT_ONCE)  # a listing does not wait for copies
        self._asking_threads.apply_async(self._connected)  # loading botocore takes longer than a listing
        self._most_bytes = most_bytes
        self._folder, self._held = _folder_of_copies()
        self._lock = threading.Lock()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()  # by path, the most recently used last
        # By table, with the listed version and the time at which the listing began.
        self._listings: dict[str, tuple[int | None, float, AsyncResult[Sequence[DataFile] | None]]] = {}

    def __str__(self) -> str:
        return str(self._bucket)

    @property
    def root(self) -> Path:
        """The temporary folder with the copies."""
        return Path(self._folder.name)

    def exists(self, name: str = "") -> bool:
        def read() -> bool:
            with self._asking(f"{self._bucket} cannot be listed"):
                found = self._connected().list_objects_v2(
                    Bucket=self._bucket.name, Prefix=self._bucket.key(name), MaxKeys=1
                )
                return bool(found.get("Contents"))

        return self._result(self._asking_threads.apply_async(read))

    def files(self, table: str, version: int | None) -> tuple[StoredFile, ...] | None:
        """The files of a version, by default of the newest one; ``None`` if there is no table.

        The listing of a version is kept. If it is too slow, it goes on for the next query, as a copy does.
        """
        with self._lock:
            known, began, asked = self._listings.get(table, (-1, 0.0, None))
            is_old = asked is not None and asked.ready() and (monotonic() - began > _KEPT_S or not asked.successful())
            if asked is None or is_old or version is None or version != known:
                asked = self._asking_threads.apply_async(self._list, (table, version))
                self._listings[table] = version, monotonic(), asked
        if (found := self._result(asked)) is None:
            return None
        names = ((each, f"{table}/{each.path}") for each in found)
        return tuple(StoredFile(each.day, self.copy_of(name), name, each.size) for each, name in names)

    def copy_of(self, name: str) -> str:
        """Return where the copy of a file is, for all of its life: no file has the name of another one."""
        return str(self.root / f"{blake2b(name.encode(), digest_size=16).hexdigest()}.parquet")

    def _list(self, table: str, version: int | None) -> Sequence[DataFile] | None:
        place = f"{self._bucket}/{table}"
        try:
            with self._asking(f"{place} cannot be listed"):
                options = s3_options(os.environ)
            return listed(place, options, version)
        except OSError as error:
            forget_credentials()
            is_refused = any(sign in str(error) for sign in _REFUSED)
            code: TablesProblem = "tables_refused" if is_refused else "tables_unavailable"
            raise HistoryFailed(code, f"{place} cannot be listed: {why(error)}") from error

    @contextmanager
    def at_hand(self, files: Collection[StoredFile]) -> Iterator[None]:
        """Copy the files that have no copy yet, and keep all copies inside the ``with`` block."""
        with self._lock:
            for file in files:
                self._copies.setdefault(file.path, _Copy(file.size)).uses += 1
                self._copies.move_to_end(file.path)
        try:
            for job in self._started(files):
                self._result(job)
            yield
        except FileGone:
            self._listings.clear()
            raise
        finally:
            with self._lock:
                for file in files:
                    self._copies[file.path].uses -= 1

    def _started(self, files: Collection[StoredFile]) -> "list[AsyncResult[None]]":
        """Start to copy the files, except those that another query has copied or is copying.

        Remove unused copies, the least recently used first, until the files fit. Raises `HistoryFailed` if they do not.
        """
        jobs = []
        with self._lock:
            rest = sum(copy.size for copy in self._copies.values()) - self._most_bytes
            for path, copy in [*self._copies.items()]:
                if rest > 0 and not copy.uses and (copy.job is None or copy.job.ready()):
                    rest -= self._copies.pop(path).size
                    Path(path).unlink(missing_ok=True)
            if rest > 0:
                needed, most = (f"{count / _MIB:,.0f} MiB" for count in (sum(f.size for f in files), self._most_bytes))
                message = f"{self._bucket} has {needed} of data for this answer: at most {most} are copied"
                raise HistoryFailed("history_too_large", message)
            for file in files:
                copy = self._copies[file.path]
                if copy.job is None or (copy.job.ready() and not copy.job.successful()):
                    copy.job = self._copying_threads.apply_async(self._copy, (file,))
                jobs.append(copy.job)
        return jobs

    def note(self) -> bytes | None:
        def read() -> bytes:
            with self._asking(f"{self._bucket}/{NOTE} cannot be read"):
                found = self._connected().get_object(Bucket=self._bucket.name, Key=self._bucket.key(NOTE))
                return found["Body"].read()

        try:
            return self._result(self._asking_threads.apply_async(read))
        except FileGone:
            return None

    def close(self) -> None:
        for threads in (self._asking_threads, self._copying_threads):
            threads.terminate()
        with self._opening:
            if self._opened is not None:
                self._opened.close()
        self._folder.cleanup()
        self._held.close()

    def _copy(self, file: StoredFile) -> None:
        aside = Path(f"{file.path}.part")
        try:
            with self._asking(f"{self._bucket}/{file.name} cannot be read"):
                found = self._connected().get_object(Bucket=self._bucket.name, Key=self._bucket.key(file.name))
                with closing(found["Body"]) as body, aside.open("wb") as written:
                    for chunk in iter(partial(body.read, _MIB), b""):
                        try:
                            written.write(chunk)
                        except OSError as error:
                            message = f"{aside} cannot be written ({error.strerror})"
                            raise HistoryFailed("history_too_large", message) from error
            aside.rename(file.path)
        except FileGone as error:
            raise FileGone(f"{self._bucket}/{file.name}") from error
        finally:
            aside.unlink(missing_ok=True)  # after an error, no limit would count the file

    def _result(self, asked: "AsyncResult[_T]") -> _T:
        try:
            return asked.get(seconds_left())
        except TimeoutError as error:
            raise too_slow(self._bucket) from error

    def _connected(self) -> "S3Client":
        with self._opening:
            if self._opened is None:
                self._opened = self._open_client()
            return self._opened

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise the errors of S3 as a `HistoryError`, and as `FileGone` if the object does not exist."""
        try:
            with explained(what, {"NoSuchKey": FileGone}):
                yield
        except StoreError as error:
            with self._opening:
                self._opened = None  # a new client reads the credentials again
            is_away = error.reason in {"unavailable", "throttled"}
            raise HistoryFailed("tables_unavailable" if is_away else "tables_refused", str(error)) from error


def _folder_of_copies() -> "tuple[tempfile.TemporaryDirectory[str], TextIO]":
    """Make a folder, with a file that is locked while this process lives. Remove the folders of killed processes."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), (left / _LOCK).open("r+") as held:
            if time() - left.stat().st_mtime > _STARTS_S:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)  # also removed at exit
    locked = Path(folder.name, _LOCK).open("w")  # noqa: SIM115 (`close` closes it)
    fcntl.flock(locked, fcntl.LOCK_EX)
    return folder, locked
