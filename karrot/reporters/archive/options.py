"""Parses the settings of the ``archive`` reporter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from karrot.settings.options import settings_of_reporter
from karrot.settings.storage_place import Place


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings. Durations are seconds, sizes are bytes. ``segment_bytes``: before compression."""

    place: Place
    segment_s: int = 60
    segment_bytes: int = 8 * 2**20
    retention_s: int = 30 * 86400
    max_bytes: int = 4 * 2**30
    body: bool = True

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> Self:
        """Read the options from the settings' texts. Raises `ValueError` with a sentence that names the setting."""
        settings = settings_of_reporter("archive", texts)
        return cls(
            place=settings.archive_dir or settings.data_dir / "archive",
            segment_s=settings.archive_segment_seconds,
            segment_bytes=settings.archive_segment_bytes,
            retention_s=settings.archive_retention,
            max_bytes=settings.archive_max_bytes,
            body=settings.archive_body,
        )
