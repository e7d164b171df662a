from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest

from karrot.history import table_files_in_s3
from karrot.history.table_queries import History
from karrot.reporters.archive import s3 as archive_s3
from karrot.settings.types import Bucket
from support.pipeline.mirrored_tables import Mirror, MirroredTables, aws_environment, moto_server

_NUMBERS = count(1)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Return tables in a directory whose name DuckDB could read as a pattern."""
    directory = tmp_path / "a [table] *? it's"
    directory.mkdir()
    return directory


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    """Start moto's server. The value is a client for it."""
    with moto_server() as address:
        session = boto3.Session("AKIDTEST", "secret", region_name="us-east-1")
        client = session.client("s3", endpoint_url=address)
        yield client
        client.close()


@pytest.fixture
def bucket(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Make a bucket that Karrot can find."""
    for name, value in aws_environment(s3.meta.endpoint_url).items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(f"lag-{next(_NUMBERS)}", "teams/karrot")
    s3.create_bucket(Bucket=bucket.name)
    return bucket


@pytest.fixture
def history_in_folder(tables: Path) -> Iterator[History]:
    """Read the tables where the test writes them."""
    with History(tables) as opened:
        yield opened


@pytest.fixture
def history_in_s3(tables: Path, s3: Any, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """Read the tables from S3, where they are always equal to the folder in which the test writes them."""
    mirrored = partial(MirroredTables, Mirror(s3, *bucket, tables))
    monkeypatch.setattr(table_files_in_s3, "TablesInS3", mirrored)
    monkeypatch.setattr(archive_s3, "open_client", lambda _environ: s3)  # a client of its own takes 100 ms
    with History(bucket) as opened:
        yield opened


@pytest.fixture(params=["folder", "s3"])
def history(request: pytest.FixtureRequest) -> History:
    """Read the tables from the folder or from S3: each answer must be the same."""
    opened: History = request.getfixturevalue(f"history_in_{request.param}")
    return opened
