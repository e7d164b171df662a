from pathlib import Path

import pytest

from karrot.settings.loading import SettingsError
from karrot.settings.options import Archive, Settings
from karrot.settings.types import Bucket
from karrot.wiring import options_of
from support.reporters import reporter_context


def test_the_archive_is_in_the_data_directory_by_default() -> None:
    settings = Settings(data_dir=Path("/var/lib/karrot"))
    assert options_of(settings, "archive") == Archive(Path("/var/lib/karrot/archive"))


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("/srv/lag", Path("/srv/lag"), "/srv/lag"),
        ("s3a://lag.example-1/", Bucket("lag.example-1", ""), "s3://lag.example-1"),
        ("s3://lag/teams/karrot_1/", Bucket("lag", "teams/karrot_1"), "s3://lag/teams/karrot_1"),
    ],
)
def test_a_location_is_a_folder_or_a_bucket_with_a_prefix(text: str, place: Path | Bucket, shown: str) -> None:
    read = reporter_context.options_of("archive", {"dir": text}).place
    assert (read, str(read)) == (place, shown)


@pytest.mark.parametrize(
    "text", ["s3://", "s3://Lag", "s3://lag//x", "s3://lag/a b", "gs://lag/x", "http://lag", "a\0b"]
)
def test_any_other_location_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"it must be a path, or s3://bucket/prefix$"):
        reporter_context.options_of("archive", {"dir": text})
