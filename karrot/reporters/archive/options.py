"""Parses the settings of the ``archive`` reporter."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from karrot.settings.options import settings_of_reporter

_S3 = "s3://"


class Bucket(NamedTuple):
    """An S3 bucket and the prefix of its keys, without a slash at either end."""

    name: str
    prefix: str

    def __str__(self) -> str:
        return f"{_S3}{self.name}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings. Durations are seconds, sizes are bytes. ``segment_bytes``: before compression."""

    place: Path | Bucket
    segment_s: int = 60
    segment_bytes: int = 8 * 2**20
    retention_s: int = 30 * 86400
    max_bytes: int = 4 * 2**30

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> Self:
        """Read the options from the settings' texts. Raises `ValueError` with a sentence that names the setting."""
        settings = settings_of_reporter("archive", texts)
        return cls(
            place=_place(settings.archive_dir or str(settings.data_dir / "archive")),
            segment_s=settings.archive_segment_seconds,
            segment_bytes=settings.archive_segment_bytes,
            retention_s=settings.archive_retention,
            max_bytes=settings.archive_max_bytes,
        )


def _place(text: str) -> Path | Bucket:
    if not text.startswith(_S3):
        return Path(text)
    name, _, prefix = text.removeprefix(_S3).partition("/")
    return Bucket(name, prefix)
