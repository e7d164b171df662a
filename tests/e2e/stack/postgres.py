"""Unpacks a version of PostgreSQL where a user who is not root can run it."""

import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.stack.downloads import Downloads, default_cache

OLDEST, NEWEST = "14.19.0", "18.0.0"
"""The versions of PostgreSQL that Karrot supports. Debian's is between them."""


@contextmanager
def unpacked_postgres(version: str) -> Iterator[Path]:
    """The folder of the programs. The cache may be closed to other users, and PostgreSQL refuses to run as root."""
    jar = Downloads(default_cache()).postgres(version)
    with tempfile.TemporaryDirectory(prefix="karrot-postgres-bin-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        with (
            zipfile.ZipFile(jar) as found,
            found.open("postgres-linux-x86_64.txz") as packed,
            tarfile.open(fileobj=packed, mode="r:xz") as archive,
        ):
            archive.extractall(place, filter="data")
        yield place / "bin"
