"""Starts a stand-in for S3, and mirrors tables of a folder into a bucket, so that tests can write files."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moto.server import ThreadedMotoServer

from karrot.history.days_with_data import NOTE
from karrot.history.delta_tables import LOG
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
        """Store new and changed files, and delete the objects of files that are gone. Return whether there were any.

        Another thread may write: a data file is stored before the log that names it, the entries of a log in their
        order, and the note after all logs.
        """
        with self._lock:
            before, found, bodies = self._seen, dict[str, tuple[int, ...]](), list[tuple[str, bytes]]()
            for path in self._files():
                key, state = f"{self._prefix}/{path.relative_to(self._folder)}", path.stat()
                found[key] = (state.st_ino, state.st_mtime_ns, state.st_size)
                if before.get(key) != found[key]:
                    bodies.append((key, path.read_bytes()))
            for key, body in sorted(bodies, key=lambda each: (each[0].endswith(NOTE), LOG in each[0], each[0])):
                self._client.put_object(Bucket=self._bucket, Key=key, Body=body)
            for key in before.keys() - found.keys():
                self._client.delete_object(Bucket=self._bucket, Key=key)
            self._seen = found
            return found != before

    def _files(self) -> Iterator[Path]:
        """List the note first, and the log of a table before its data files."""
        for parent, below, names in os.walk(self._folder):
            below.sort(key=lambda name: (name != "_delta_log", name))
            yield from (path for name in sorted(names) if (path := Path(parent, name)).exists() and name[0] != ".")


class MirroredTables(TablesInS3):
    """Tables in S3 that are always equal to the tables of a folder, without the time for which a listing is kept."""

    def __init__(self, mirror: Mirror, *arguments: Any, **limits: Any) -> None:
        super().__init__(*arguments, **limits)
        self._mirror = mirror

    def exists(self, name: str = "") -> bool:
        self._update()
        return super().exists(name)

    def listed(self, table: str, version: int | None) -> Any:
        self._update()
        return super().listed(table, version)

    def note(self) -> bytes | None:
        self._update()
        return super().note()

    def _update(self) -> None:
        if self._mirror.update():
            self._listings.clear()
