"""Stores segments as objects on Amazon S3, or on a store with the same API.

An object appears completely or not at all. boto3's environment variables control the endpoint, the credentials and the
proxies (``AWS_ENDPOINT_URL_S3``, ``AWS_PROFILE``, web identity, containers, instances).
"""

# ruff: noqa: PLC0415 - loading boto3 takes a second and 30 MB, so only the process that writes loads boto3

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from karrot.aws.classify_errors import FaultKind, fault_of
from karrot.reporters.archive.segment_store import SegmentName, StoredSegment, StoreError
from karrot.settings.types import Bucket

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_CONNECT_TIMEOUT_S = 2
_READ_TIMEOUT_S = 10
_ATTEMPTS = 2
_A_CALL = 1000
"""The most objects that one call may delete."""

_NONE: Mapping[str, type[Exception]] = MappingProxyType({})
_REASONS = {
    FaultKind.THROTTLED: "throttled",
    FaultKind.CREDENTIALS: "credentials",
    FaultKind.PERMISSION: "permission",
}


def open_client(environ: Mapping[str, str]) -> "S3Client":
    """Open a client in the process that writes. The Region is ``AWS_REGION``, or the Region that boto3 finds."""
    from botocore.config import Config
    from botocore.session import Session

    # boto3's default retries would block a send for minutes. The reporter itself repeats a failed send.
    limits = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        user_agent_extra="karrot",
    )
    session = Session()
    session.set_default_client_config(limits)  # also for the clients that fetch credentials
    region = environ.get("AWS_REGION", "").strip() or None
    return cast("S3Client", session.create_client("s3", region_name=region))


@contextmanager
def explained(what: str, expected: Mapping[str, type[Exception]] = _NONE) -> Iterator[None]:
    """Convert boto3's errors to `StoreError` about ``what``. ``expected`` has other exceptions for some S3 codes."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
        if code in expected:
            raise expected[code] from error
        fault = fault_of(error)
        reason = "no_bucket" if code == "NoSuchBucket" else _REASONS.get(fault.kind, "unavailable")
        raise StoreError(reason, f"{what}: {fault.text}") from error


class Client:
    """A client for all threads, which is opened at the first call, and again after a failure."""

    def __init__(self, open_client: Callable[[], "S3Client"]) -> None:
        self._open = open_client
        self._opened: S3Client | None = None
        self._opening = threading.Lock()  # opening can take seconds

    def opened(self) -> "S3Client":
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    @contextmanager
    def calling(self, what: str, expected: Mapping[str, type[Exception]] = _NONE) -> Iterator["S3Client"]:
        """Yield the client, and convert its errors, as `explained` does."""
        try:
            with explained(what, expected):
                yield self.opened()
        except StoreError:
            self.close()  # a new client reads the credentials again
            raise

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None


class _AlreadyStored(Exception):  # noqa: N818 (names what happened)
    """An earlier request stored the segment."""


class Objects:
    """Stores segments as S3 objects, without a lock against other processes that write to the same prefix."""

    def __init__(self, bucket: Bucket, open_client: Callable[[], "S3Client"]) -> None:
        self._bucket = bucket
        self._client = Client(open_client)

    def open(self) -> Iterator[StoredSegment]:
        return self._listed("day=")

    def put(self, name: SegmentName, data: bytes) -> None:
        """Store a segment. If the object exists, an earlier request whose answer was lost has stored the segment."""
        stored = {"PreconditionFailed": _AlreadyStored}
        with suppress(_AlreadyStored), self._client.calling(f"{name.file} cannot be stored", stored) as client:
            client.put_object(Bucket=self._bucket.name, Key=self._bucket.key(name.path), Body=data, IfNoneMatch="*")

    def within(self, hour: str) -> Iterator[StoredSegment]:
        return self._listed(f"{hour}/")

    def remove(self, names: Iterable[SegmentName]) -> None:
        keys = [self._bucket.key(name.path) for name in names]
        for start in range(0, len(keys), _A_CALL):
            with self._client.calling("old segments cannot be deleted") as client:
                answer = client.delete_objects(
                    Bucket=self._bucket.name,
                    Delete={"Objects": [{"Key": key} for key in keys[start : start + _A_CALL]], "Quiet": True},
                )
            for error in answer.get("Errors", []):
                raise StoreError(
                    "permission" if error.get("Code") == "AccessDenied" else "unavailable",
                    f"old segments cannot be deleted: {error.get('Code')}: {error.get('Message')}",
                )

    def close(self) -> None:
        self._client.close()

    def _listed(self, under: str) -> Iterator[StoredSegment]:
        with self._client.calling(f"{self._bucket} cannot be listed") as client:
            pages = client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket.name, Prefix=self._bucket.key(under)):
                for each in page.get("Contents", []):
                    name = SegmentName.parse(each["Key"].removeprefix(self._bucket.key("")))
                    if name is not None:
                        yield StoredSegment(name, each["Size"])
