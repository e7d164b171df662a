"""The contract of a segment store, run for a folder and for a bucket with a real S3 client and moto's server."""

import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from karrot.eventlog.base import Cursor
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.archive import local_folder
from karrot.reporters.archive.local_folder import Folder
from karrot.reporters.archive.s3 import Objects, open_client
from karrot.reporters.archive.segment_store import SegmentName, SegmentStore, StoredSegment, StoreError, hour_at
from karrot.reporters.base import Unreported
from karrot.settings.types import Bucket
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock
from support.reporters.archive_folder import archive_feed, segment_lines

NINE, TEN = hour_at(1_800_003_600_000), hour_at(1_800_007_200_000)
FIRST = SegmentName(NINE, "9f3c", 1, 500, 500)
SECOND = SegmentName(NINE, "9f3c", 501, 502, 2)
OTHER = SegmentName(TEN, "77aa", 1, 1, 1)


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """Start moto's server, and return a client for it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        client = boto3.Session(region_name="eu-west-1").client("s3", endpoint_url=f"http://{host}:{port}")
        yield client
        client.close()
    server.stop()


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> Bucket:
    """Create a bucket for one test."""
    bucket = Bucket(f"lag-{abs(hash(request.node.name)):x}", "teams/karrot")
    s3.create_bucket(Bucket=bucket.name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    return bucket


def objects(bucket: Bucket) -> Objects:
    return Objects(bucket, partial(open_client, {"AWS_REGION": "eu-west-1"}))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentStore]:
    store: SegmentStore = Folder(tmp_path) if request.param == "folder" else objects(request.getfixturevalue("bucket"))
    yield store
    store.close()


def test_a_stored_segment_is_found_and_a_removed_one_is_not(store: SegmentStore) -> None:
    assert list(store.open()) == []
    for name, data in ((FIRST, b"first"), (SECOND, b"second!"), (OTHER, b"other")):
        store.put(name, data)
    assert sorted(store.open()) == [StoredSegment(FIRST, 5), StoredSegment(SECOND, 7), StoredSegment(OTHER, 5)]
    assert sorted(store.within(NINE)) == [StoredSegment(FIRST, 5), StoredSegment(SECOND, 7)]
    store.remove([FIRST, SECOND, SECOND._replace(last=503)])
    assert list(store.within(NINE)) == []
    assert list(store.open()) == [StoredSegment(OTHER, 5)]


def test_a_name_is_never_written_twice(store: SegmentStore) -> None:
    list(store.open())
    store.put(FIRST, b"first")
    store.put(FIRST, b"another")
    assert list(store.open()) == [StoredSegment(FIRST, 5)]


def test_a_folder_that_cannot_be_synced_keeps_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Folder(tmp_path)
    assert list(store.open()) == []

    def fail_for_the_hour(path: Path) -> None:
        if path == tmp_path / NINE:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(local_folder, "flush", fail_for_the_hour)
    with pytest.raises(StoreError):
        store.put(FIRST, b"first")
    assert list(store.open()) == []
    store.close()


def test_a_folder_ignores_other_names_and_removes_partial_files(tmp_path: Path) -> None:
    folder = tmp_path / NINE
    folder.mkdir(parents=True)
    half, strange, dotted = folder / f".{FIRST.file}.part", folder / "notes.txt", folder / ".notes.part"
    for path in (half, strange, dotted, tmp_path / "day=2026-11-21" / "x", tmp_path / "README"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    store = Folder(tmp_path)
    assert list(store.open()) == []
    assert (half.exists(), strange.exists(), dotted.exists()) == (False, True, True)
    store.put(OTHER, b"other")
    store.remove([OTHER])
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [".lock", "README", "day=2026-11-21", NINE.partition("/")[0]]
    )


@pytest.mark.parametrize(
    ("before", "after", "folder"),
    [
        *((None, 0o700, 0o750), (0o755, 0o700, 0o750)),  # the second root was made by an older version
        *((0o750, 0o750, 0o750), (0o2755, 0o2750, 0o2750)),
    ],
)
def test_only_the_owner_and_a_chosen_group_can_enter_an_archive(
    tmp_path: Path, before: int | None, after: int, folder: int
) -> None:
    root = tmp_path / "archive"
    if before is not None:
        root.mkdir()
        root.chmod(before)
    store = Folder(root)
    assert list(store.open()) == []
    store.put(FIRST, b"first")
    store.close()
    hour = root / NINE
    paths = (root, hour.parent, hour, hour / FIRST.file, root / ".lock")
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [after, folder, folder, 0o640, 0o600]


def test_a_bucket_has_the_events_of_the_log_under_the_same_names(s3: Any, bucket: Bucket) -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock)
    append_event(log, consumer="a")
    append_event(log, consumer="b")
    s3.put_object(Bucket=bucket.name, Key=f"{bucket.prefix}/{NINE}/notes.txt", Body=b"strange")
    feed = archive_feed(log, clock, str(bucket))
    reporter = feed.reporter
    assert reporter is not None
    reporter.report(Unreported(log, Cursor(log.log_id, 0)))
    reporter.close()
    key = f"{bucket.prefix}/day=2027-01-15/hour=08/{log.log_id}-1-2-2.jsonl.gz"
    body = s3.get_object(Bucket=bucket.name, Key=key)["Body"].read()
    assert [(line.seq, line.consumer) for line in segment_lines(body)] == [(1, "a"), (2, "b")]

    append_event(log, consumer="c")
    successor = archive_feed(log, clock, str(bucket))  # the cursor does not have this segment
    successor.step()
    successor.step()
    successor.close()
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket.name)["Contents"]]
    assert [each.rpartition("/")[2] for each in keys] == [
        f"{log.log_id}-1-2-2.jsonl.gz",
        f"{log.log_id}-3-3-1.jsonl.gz",
        "notes.txt",
    ]


@pytest.mark.parametrize(
    ("bucket", "environ", "reason"),
    [
        (Bucket("nobody-made-this", ""), {}, "no_bucket"),
        (Bucket("nobody-made-this", ""), {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, "unavailable"),
        (
            Bucket("nobody-made-this", ""),
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"},
            "credentials",
        ),
    ],
    ids=["a bucket that does not exist", "an endpoint that does not answer", "no credentials"],
)
@pytest.mark.usefixtures("s3")
def test_an_unusable_bucket_is_reported_with_the_reason(
    bucket: Bucket, environ: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError) as caught:
        list(objects(bucket).open())
    assert caught.value.reason == reason
    assert str(caught.value).startswith("s3://nobody-made-this cannot be listed: ")
