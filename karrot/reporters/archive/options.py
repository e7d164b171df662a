"""Parse the settings of the ``archive`` reporter."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from karrot.settings import types
from karrot.settings.types import ValueKind

T = TypeVar("T")

_S3 = "s3://"
_SEGMENT_SECONDS = types.duration(1, 3600)
_SEGMENT_BYTES = types.size(2**12, 2**28)
_RETENTION = types.duration(3600, 3650 * 86400)
_MAX_BYTES = types.size(2**20, 2**50)


class Bucket(NamedTuple):
    """A bucket of S3, and what the keys in it begin with; no slash at either end."""

    name: str
    prefix: str

    def __str__(self) -> str:
        return f"{_S3}{self.name}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings. Spans of time are seconds, sizes are bytes; ``segment_bytes`` is before compression."""

    place: Path | Bucket
    segment_s: int = 60
    segment_bytes: int = 8 * 2**20
    retention_s: int = 30 * 86400
    max_bytes: int = 4 * 2**30

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> Self:
        """The options that texts stand for; an empty text, or none, leaves the default.

        Raises `ValueError` with a sentence that names the setting.
        """

        def value(name: str, kind: ValueKind[T], default: T) -> T:
            text = settings.get(name, "").strip()
            return types.checked(kind, name, text) if text else default

        default = cls(Path())
        return cls(
            place=_place(value("dir", types.place, "archive")),
            segment_s=value("segment_seconds", _SEGMENT_SECONDS, default.segment_s),
            segment_bytes=value("segment_bytes", _SEGMENT_BYTES, default.segment_bytes),
            retention_s=value("retention", _RETENTION, default.retention_s),
            max_bytes=value("max_bytes", _MAX_BYTES, default.max_bytes),
        )


def _place(text: str) -> Path | Bucket:
    if not text.startswith(_S3):
        return Path(text)
    name, _, prefix = text.removeprefix(_S3).partition("/")
    return Bucket(name, prefix)
