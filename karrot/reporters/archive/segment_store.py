"""The contract of a place where segments are kept, and the error for a place that cannot be used."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from karrot.reporters.archive.segment_names import ArchiveHour, SegmentName


class StoredSegment(NamedTuple):
    """A segment that is there, and its size in bytes."""

    name: SegmentName
    size: int


class StoreError(Exception):
    """The place cannot be used now. ``reason`` is stable and labels a metric; the text is a sentence for people."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class SegmentStore(Protocol):
    """A place for segments. Files with other names are never touched. Every method may raise `StoreError`."""

    def open(self) -> Iterator[StoredSegment]:
        """Take the place for this process, where others can be kept out, and go through all that is there."""

    def put(self, name: SegmentName, data: bytes) -> None:
        """Keep a segment: whole and on disk when this returns. One that is there already is left as it is."""

    def within(self, hour: ArchiveHour) -> Iterator[StoredSegment]:
        """The segments of one hour."""

    def remove(self, names: Iterable[SegmentName]) -> None:
        """Delete segments; one that is gone already is no error."""

    def close(self) -> None:
        """Let another process have the place. Does not raise."""
