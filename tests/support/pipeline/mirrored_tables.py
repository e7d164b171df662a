"""Starts a stand-in for S3, and mirrors tables of a folder into a bucket, so that tests can write files."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.server import ThreadedMotoServer

from karrot.history.table_files_in_s3 import TablesInS3

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client


@contextmanager
def moto_server() -> Iterator[str]:
    """Start moto's server. The value is its address."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def aws_environment(address: str) -> dict[str, str]:
    """Return the environment variables with which AWS programs find the server."""
    return {
        "AWS_ENDPOINT_URL_S3": address,
        "AWS_ACCESS_KEY_ID": "AKIDTEST",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Mirror:
    """Makes a prefix of a bucket equal to a folder, each time that it is asked to."""

    def __init__(self, client: "S3Client", bucket: str, prefix: str, folder: Path) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._folder = folder
        self._seen: dict[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def update(self) -> bool:
        """Store new and changed files, and delete the objects of files that are gone. Return whether there were any."""
        with self._lock:
            before = self._seen
            found = dict(self._files())
            for key in self._seen.keys() - found.keys():
                self._client.delete_object(Bucket=self._bucket, Key=key)
            for key, state in found.items():
                if self._seen.get(key) != state:
                    body = self._folder.joinpath(key.removeprefix(f"{self._prefix}/")).read_bytes()
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=body)
            self._seen = found
            return found != before

    def _files(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for parent, _, names in os.walk(self._folder):
            for path in (Path(parent, name) for name in names):
                if path.exists():
                    state = path.stat()
                    key = f"{self._prefix}/{path.relative_to(self._folder)}"
                    yield key, (state.st_ino, state.st_mtime_ns, state.st_size)


class MirroredTables(TablesInS3):
    """Tables in S3 that are always equal to the tables of a folder, without the second for which a listing is kept."""

    def __init__(self, mirror: Mirror, *arguments: Any, **limits: Any) -> None:
        super().__init__(*arguments, **limits)
        self._mirror = mirror

    def _objects(self, table: str, *, now: bool) -> Any:
        if self._mirror.update():
            self._listings.clear()
        return super()._objects(table, now=now)

    def _listed(self, under: str, limit: int | None = None) -> Any:
        self._mirror.update()
        return super()._listed(under, limit)

    def note(self) -> bytes | None:
        self._mirror.update()
        return super().note()
