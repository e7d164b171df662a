"""Records what a process and its children write below a folder (``recorder.c``), and reads the recording."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Self

import pytest

_SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = Struct("<IIQqQ")
_MAGIC = 0x54555043


class Kind(IntEnum):
    """The values of ``enum`` in ``recorder.c``."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    FLUSH = 4
    FLUSHED = 5
    LINK = 6
    RENAME = 7
    UNLINK = 8
    FOLDER = 9
    UNKNOWN = 10


class Record(NamedTuple):
    """One recorded call. ``end`` is the size of the recording up to this record."""

    end: int
    kind: Kind
    inode: int
    number: int
    data: bytes


@dataclass(frozen=True)
class Recording:
    """The recording of what happened below ``folder``, in ``file``."""

    folder: Path
    file: Path

    @classmethod
    def of(cls, scratch: Path) -> Self:
        """The recording of ``scratch/disk``."""
        return cls(scratch.resolve() / "disk", scratch.resolve() / "recording")

    def begin(self) -> dict[str, str]:
        """Make the folder. A process with the returned variables in its environment is recorded."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler (Debian: apt-get install gcc libc6-dev)")
        self.folder.mkdir(parents=True)
        self.file.touch()
        library = self.file.with_name("recorder.so")
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _SOURCE, "-ldl"], check=True)
        return {"LD_PRELOAD": str(library), "RECORD_FOLDER": str(self.folder), "RECORD_FILE": str(self.file)}

    def position(self) -> int:
        """The present size of the recording. All that has happened is before it."""
        return self.file.stat().st_size

    def records(self) -> Iterator[Record]:
        content, at = self.file.read_bytes(), 0
        while at < len(content):
            magic, kind, inode, number, length = _HEAD.unpack_from(content, at)
            assert magic == _MAGIC, f"the recording is damaged at {at}"
            at += _HEAD.size + length
            yield Record(at, Kind(kind), inode, number, content[at - length : at])
