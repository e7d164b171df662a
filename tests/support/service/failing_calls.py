"""Makes one call of the C library fail, once, in all processes of a program: the n-th call of a kind.

``failing_calls.c`` says which calls and files these are.
"""

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

KINDS = (
    *("open", "read", "write", "sync", "truncate", "rename", "unlink", "mkdir", "stat", "list"),
    *("flock", "lock", "map", "thread", "fork", "accept", "descriptor", "database"),
)
_SOURCE = Path(__file__).with_suffix(".c")
_TEXT = slice(256, 1280)


class FailingCalls:
    """The calls of a program that runs with ``environment``, on files in ``directory``."""

    def __init__(self, directory: Path, database_port: int = 0) -> None:
        if shutil.which("cc") is None:
            pytest.skip("needs a C compiler (Debian: apt-get install gcc libc6-dev)")
        library, control = directory / "failing_calls.so", directory / "control"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
        control.write_bytes(struct.pack("i", -1) + bytes(4092))
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAILING_CALLS": str(control),
            "FAILING_CALLS_PORT": str(database_port),
        }
        with control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 4096)

    def arm(self, kind: str, number: int, error: int) -> None:
        """Make the call with this number, from now on, fail with this error."""
        self.disarm()
        struct.pack_into("iii", self._shared, 4, number, error, 0)
        struct.pack_into("i", self._shared, 0, KINDS.index(kind))

    def disarm(self) -> None:
        struct.pack_into("i", self._shared, 0, -1)

    def failed(self) -> str:
        """The call that has failed. Empty if none has failed since `arm`."""
        is_done = struct.unpack_from("i", self._shared, 12)[0]
        return self._shared[_TEXT].split(b"\0")[0].decode() if is_done else ""
