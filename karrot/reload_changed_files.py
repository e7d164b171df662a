"""Loads a value again when the content of its files changes: the TLS certificate, or tokens that Kubernetes mounts."""

import hashlib
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, Literal, Self, TypeVar

import structlog

from karrot import telemetry
from karrot.settings.sources import SourceError

T = TypeVar("T")

_CHECK_S = 1.0
"""The seconds between two reads of the files. A read of a certificate takes a third of a millisecond."""

FileProblem = Literal["certificate_unusable", "secrets_unusable"]
"""The stable codes for unusable files. ``docs/reference/codes.md`` has their remedies."""

_log = structlog.get_logger(__name__)


class NewestFromFiles(Generic[T]):
    """Returns the newest value from some files. Call the object at each use, from any thread. It has no thread.

    ``make`` reads the files. It raises `OSError`, `ValueError` or `SourceError` if the files cannot be used. The old
    value then stays, and the next check calls ``make`` again. An error of two checks in a row is logged with the code
    ``failure`` and counted once with the event log's ``count``. ``first`` is the value before the first check.
    """

    def __init__(
        self,
        make: Callable[[], T],
        first: T,
        *,
        failure: FileProblem,
        count: Callable[..., None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._value = first
        self._failure = failure
        self._count = count
        self._now = now
        self._next_check = now()
        self._reason = ""
        self._is_reported = False
        self._lock = threading.Lock()

    def __call__(self) -> T:
        """Return the newest value, or the old one while another thread makes a new one."""
        if self._now() >= self._next_check and self._lock.acquire(blocking=False):
            try:
                self._next_check = self._now() + _CHECK_S
                self._check()
            finally:
                self._lock.release()
        return self._value

    def _check(self) -> None:
        files = self._failure.removesuffix("_unusable")
        try:
            made = self._make()
        except (OSError, ValueError, SourceError) as error:
            was, self._reason = self._reason, str(error)
            is_again = was == self._reason  # `make` may have read an old file with a new one, so one error is no error
            if is_again and not self._is_reported:
                self._count(telemetry.FILE_FAILURES, files=files)
                _log.error(
                    "changed files cannot be used, the old ones stay", files=files, code=self._failure, reason=was
                )
            self._is_reported = is_again
            return
        self._reason, self._is_reported = "", False
        if made != self._value:
            self._value = made
            _log.info("changed files are in use", files=files)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A TLS certificate chain with its private key. Two certificates are equal if their files have the same content.

    ``context`` is for new connections. The parent process makes it, and the workers inherit it.
    """

    chain: Path
    key: Path
    context: ssl.SSLContext = field(compare=False)
    digest: bytes = field(repr=False)

    @classmethod
    def read(cls, chain: Path, key: Path) -> Self:
        """Read two PEM files. Raises `OSError` or `ValueError` if they are not a certificate and its private key."""
        digest = hashlib.sha256(chain.read_bytes() + b"\0" + key.read_bytes()).digest()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Without a password here, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(chain, key, password="")
        return cls(chain, key, context, digest)

    def newest(self, count: Callable[..., None]) -> Callable[[], ssl.SSLContext]:
        """Make a function that returns the context for a new connection, from the current files."""
        read = partial(Certificate.read, self.chain, self.key)
        certificate = NewestFromFiles(read, self, failure="certificate_unusable", count=count)
        return lambda: certificate().context
