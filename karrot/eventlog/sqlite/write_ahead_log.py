"""Finds events in SQLite's write-ahead log that SQLite does not read, because a frame before them is damaged.

The file is a header, and frames: a header of 24 bytes and a page. The checksum of a frame continues that of the frame
before it, so SQLite reads nothing behind a damaged frame. Format: https://sqlite.org/fileformat2.html#walformat
"""

import re
import struct
from pathlib import Path

import apsw

_FRAME = struct.Struct(">II8s8s")
"""A frame's header: the number of the page, the size of the database after a commit or 0, the salt, the checksum."""

_NEWEST_EVENT = re.compile(rb"\x03\x19([\x01-\x06])events")
"""The row of ``events`` in ``sqlite_sequence``: the type of the number, and the name. The number follows."""

_NUMBER_BYTES = (0, 1, 2, 3, 4, 6, 8)


def newest_lost_event(connection: apsw.Connection) -> int:
    """Return the newest event in the commits behind a damaged frame. 0 without damage.

    Frames with another salt are older than the last checkpoint. A crash can leave any frames of the last commit, but
    nothing behind it, and a commit writes a page once. So a sound frame with a page that came before proves damage.
    """
    size = _FRAME.size + connection.pragma("page_size")
    readable, _ = connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)
    numbers = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_sequence'").get
    newest = committed = at = 0
    pages: set[int] = set()
    is_damaged = False
    with Path(connection.filename_wal).open("rb") as file:
        header = file.read(32).ljust(32)
        before = header[-8:]
        salt = header[16:24] if _checksum(header[:-8], bytes(8)) == before else None
        while len(frame := file.read(size)) == size:
            at += 1
            page, is_commit, its_salt, checksum = _FRAME.unpack_from(frame)
            salt = salt or its_salt
            if at > readable and its_salt == salt:
                if _checksum(frame[:8] + frame[_FRAME.size :], before) == checksum:
                    is_damaged |= page in pages
                    for row in _NEWEST_EVENT.finditer(frame if page == numbers else b""):
                        end = row.end() + _NUMBER_BYTES[row[1][0]]
                        newest = max(newest, int.from_bytes(frame[row.end() : end]))
                    committed = newest if is_commit else committed
                pages.add(page)
            before = checksum
    return committed if is_damaged else 0


def _checksum(data: bytes, before: bytes) -> bytes:
    first, second = struct.unpack(">II", before)
    words = iter(memoryview(data).cast("I"))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return struct.pack(">II", first, second)
