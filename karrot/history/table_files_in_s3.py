"""Lists the data files of tables in S3, and copies the files that a query needs to this machine.

A data file never changes, so Karrot keeps its copy for later queries. The copies are in a temporary folder of the
process.
"""

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
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
from karrot.history.table_files_in_folder import FileGone, listed, seconds_left, too_slow
from karrot.reporters.archive.s3 import Client
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


@dataclass(slots=True)
class _Copy:
    """A copy of a file. It is complete if its job was successful, and it can be removed if nothing uses it."""

    size: int
    job: "AsyncResult[None]"
    uses: int = 0


class TablesInS3:
    """Reads tables in S3, with requests in threads: a query ends at its time limit even if S3 is silent.

    Together, the copies have at most ``most_bytes``.
    """

    def __init__(self, bucket: Bucket, open_client: Callable[[], "S3Client"], *, most_bytes: int) -> None:
        self._bucket = bucket
        self._client = Client(open_client)
        # A command ends without waiting for these threads, unlike those of concurrent.futures.
        self._asking_threads = ThreadPool(_AT_ONCE)
        self._copying_threads = ThreadPool(_AT_ONCE)  # a listing does not wait for copies
        self._asking_threads.apply_async(self._client.opened)  # loading botocore takes longer than a listing
        self._most_bytes = most_bytes
        self._folder, self._held = _folder_of_copies()
        self._lock = threading.Lock()
        self._copies: dict[str, _Copy] = {}  # by path, the most recently used last
        # By table, with the listed version and the time at which the listing began.
        self._listings: dict[str, tuple[int | None, float, AsyncResult[Sequence[DataFile] | None]]] = {}

    def __str__(self) -> str:
        return str(self._bucket)

    @property
    def root(self) -> Path:
        """The temporary folder with the copies."""
        return Path(self._folder.name)

    def exists(self, name: str = "") -> bool:
        def ask(client: "S3Client") -> bool:
            found = client.list_objects_v2(Bucket=self._bucket.name, Prefix=self._bucket.key(name), MaxKeys=1)
            return bool(found.get("Contents"))

        return self._in_time(f"{self._bucket} cannot be listed", ask)

    def note(self) -> bytes | None:
        def ask(client: "S3Client") -> bytes:
            return client.get_object(Bucket=self._bucket.name, Key=self._bucket.key(NOTE))["Body"].read()

        try:
            return self._in_time(f"{self._bucket}/{NOTE} cannot be read", ask)
        except FileGone:
            return None

    def listed(self, table: str, version: int | None) -> Sequence[DataFile] | None:
        """The data files of a version, by default of the newest one; ``None`` if there is no table.

        The listing of a version is kept. If it is too slow, it goes on for the next query, as a copy does.
        """
        with self._lock:
            known, began, asked = self._listings.get(table, (-1, 0.0, None))
            is_old = asked is not None and asked.ready() and (monotonic() - began > _KEPT_S or not asked.successful())
            if asked is None or is_old or version is None or version != known:
                asked = self._asking_threads.apply_async(self._list, (table, version))
                self._listings[table] = version, monotonic(), asked
        return self._result(asked)

    def _list(self, table: str, version: int | None) -> Sequence[DataFile] | None:
        place = f"{self._bucket}/{table}"
        try:
            return listed(place, s3_options(os.environ), version)
        except OSError as error:
            forget_credentials()
            is_refused = isinstance(error, PermissionError) or any(sign in str(error) for sign in _REFUSED)
            code: TablesProblem = "tables_refused" if is_refused else "tables_unavailable"
            raise HistoryFailed(code, f"{place} cannot be listed: {why(error)}") from error

    def path(self, table: str, file: DataFile) -> str:
        """Where the copy of a file is. No name leaves the folder of the copies."""
        name = blake2b(f"{table}/{file.path}".encode(), digest_size=16).hexdigest()
        return str(self.root / f"{name}.parquet")

    @contextmanager
    def at_hand(self, table: str, files: Mapping[str, DataFile]) -> Iterator[None]:
        """Copy the files that no other query has copied or is copying, and keep all inside the ``with`` block.

        Raises `HistoryFailed` if they are too large, and `FileGone`.
        """
        with self._lock:
            self._make_room(files)
            for path, file in files.items():
                start = partial(self._copying_threads.apply_async, self._copy, (f"{table}/{file.path}", Path(path)))
                copy = self._copies.pop(path, None) or _Copy(file.size, start())
                if copy.job.ready() and not copy.job.successful():
                    copy.job = start()
                copy.uses += 1
                self._copies[path] = copy
            copies = [self._copies[path] for path in files]
        try:
            for copy in copies:
                self._result(copy.job)
            yield
        except FileGone:
            self._listings.clear()
            raise
        finally:
            with self._lock:
                for copy in copies:
                    copy.uses -= 1

    def _make_room(self, files: Mapping[str, DataFile]) -> None:
        """Remove unused copies of other files, the least recently used first, until all files fit."""
        others = {path: copy for path, copy in self._copies.items() if path not in files}
        needed = sum(file.size for file in files.values())
        rest = needed + sum(copy.size for copy in others.values()) - self._most_bytes
        for path, copy in others.items():
            if rest > 0 and not copy.uses and copy.job.ready():
                rest -= self._copies.pop(path).size
                Path(path).unlink(missing_ok=True)
        if rest > 0:
            size, most = (f"{count / _MIB:,.0f} MiB" for count in (needed, self._most_bytes))
            message = f"{self._bucket} has {size} of data for this answer: at most {most} are copied"
            raise HistoryFailed("history_too_large", message)

    def _copy(self, name: str, path: Path) -> None:
        aside = path.with_suffix(".part")

        def ask(client: "S3Client") -> None:
            found = client.get_object(Bucket=self._bucket.name, Key=self._bucket.key(name))
            with closing(found["Body"]) as body, aside.open("wb") as written:
                for chunk in iter(partial(body.read, _MIB), b""):
                    try:
                        written.write(chunk)
                    except OSError as error:
                        message = f"{aside} cannot be written ({error.strerror})"
                        raise HistoryFailed("history_too_large", message) from error

        try:
            self._ask(f"{self._bucket}/{name} cannot be read", ask)
            aside.rename(path)
        except FileGone as error:
            raise FileGone(f"{self._bucket}/{name}") from error
        finally:
            aside.unlink(missing_ok=True)  # after an error, no limit would count the file

    def close(self) -> None:
        for threads in (self._asking_threads, self._copying_threads):
            threads.terminate()
        self._client.close()
        self._folder.cleanup()
        self._held.close()

    def _in_time(self, what: str, call: Callable[["S3Client"], _T]) -> _T:
        asked: AsyncResult[_T] = self._asking_threads.apply_async(self._ask, (what, call))
        return self._result(asked)

    def _result(self, asked: "AsyncResult[_T]") -> _T:
        try:
            return asked.get(seconds_left())
        except TimeoutError as error:
            raise too_slow(self._bucket) from error

    def _ask(self, what: str, call: Callable[["S3Client"], _T]) -> _T:
        """Call S3. Its errors become `HistoryFailed`, and `FileGone` if the object does not exist."""
        try:
            with self._client.calling(what, {"NoSuchKey": FileGone}) as client:
                return call(client)
        except StoreError as error:
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
