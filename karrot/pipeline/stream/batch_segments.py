"""The segments of the archive: what a name promises, and which segments a batch of Spark's file source has taken."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final, NamedTuple, Self

from karrot.pipeline.store.filesystem import plain_url
from karrot.pipeline.stream.checkpoints import Read
from karrot.reporters.archive.segment_store import lines_promised

_LOG: Final = "sources/0"


class Segment(NamedTuple):
    """A file that Spark took, and when it was written (epoch milliseconds).

    ``promised`` is the number of lines that the name of an archive's segment ends in, ``None`` for any other name.
    """

    path: str
    promised: int | None
    written_ms: int

    @classmethod
    def taken(cls, url: str, written_ms: int) -> Self:
        """The segment that an entry of the file source's log names."""
        path = plain_url(url)
        return cls(path, lines_promised(path.rpartition("/")[2]), written_ms)

    @property
    def written_on(self) -> date:
        """The day, in UTC, that the segment was written on."""
        return datetime.fromtimestamp(self.written_ms / 1000, UTC).date()

    def missing(self, lines: int) -> int:
        """How many lines the segment lacks of those that its name promises."""
        return max(0, (self.promised or 0) - lines)


def segments_of_batch(read: Read, batch: int) -> list[Segment]:
    """Which segments a batch has taken, the empty and the vanished among them, as the file source's own log says.

    A DataFrame tells of the files that it found lines in. The log (its format is version 1 since Spark 2.0) holds an
    entry per file; a batch is a range of the log, from the offset of the batch before to its own.
    """
    first = 0 if batch == 0 else _log_offset(read, batch - 1) + 1
    numbers = range(first, _log_offset(read, batch) + 1)
    return sorted(segment for number in numbers for segment in _entries(read, number))


def _log_offset(read: Read, batch: int) -> int:
    text = read(f"offsets/{batch}")
    if text is None:
        raise FileNotFoundError(f"the checkpoint has no offsets of batch {batch}")
    offset = text.splitlines()[-1]
    return -1 if offset == "-" else int(json.loads(offset)["logOffset"])


def _entries(read: Read, number: int) -> Iterator[Segment]:
    """The files of one log entry: each tenth is compacted, and then holds those of its predecessors too."""
    text = read(f"{_LOG}/{number}.compact") or read(f"{_LOG}/{number}")
    if text is None:
        raise FileNotFoundError(f"the checkpoint's log of files has no entry {number}")
    for entry in map(json.loads, text.splitlines()[1:]):
        if entry["batchId"] == number:
            yield Segment.taken(entry["path"], entry["timestamp"])
