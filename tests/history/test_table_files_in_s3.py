"""What differs for tables in S3: errors, the copies, and objects that are replaced while they are read."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from karrot.history.answers_and_errors import (
    HistoryError,
    HistoryFailed,
)
from karrot.history.duckdb_reader import Duck, Row
from karrot.history.table_files_in_folder import FilesChanged, TablesInFolder, time_limit
from karrot.history.table_files_in_s3 import TablesInS3
from karrot.history.table_queries import History
from karrot.history.time_ranges import TimeRange
from karrot.settings.types import Bucket
from support.pipeline.mirrored_tables import aws_environment
from support.pipeline.row_times import DAY, minute_at
from support.pipeline.table_files import lag_minute_row, write_day, write_rows
from support.waiting import wait_for

WHOLE = TimeRange(minute_at(0), minute_at(3 * 1440))
FILE = f"lag_minute/day={DAY}/lag_minute.parquet"


class Gate:
    """A client that holds every GET of an object until the gate is open, and counts them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.is_open = threading.Event()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_object(self, **asked: Any) -> Any:
        self.asked += 1
        assert self.is_open.wait(30)
        return self._client.get_object(**asked)


@pytest.fixture
def gate(s3: Any) -> Iterator[Gate]:
    gate = Gate(s3)
    yield gate
    gate.is_open.set()


@pytest.fixture
def stored(bucket: Bucket, gate: Gate) -> Iterator[TablesInS3]:
    gate.is_open.set()
    opened = TablesInS3(bucket, partial(cast, "S3Client", gate), most_bytes=10_000)
    yield opened
    gate.is_open.set()
    opened.close()


def put(s3: Any, bucket: Bucket, name: str, body: bytes) -> None:
    s3.put_object(Bucket=bucket.name, Key=bucket.key(name), Body=body)


def contents(stored: TablesInS3) -> list[bytes]:
    files = stored.files("lag_minute", lambda _day: True, now=True)
    with stored.at_hand(files):
        return [Path(each.path).read_bytes() for each in files]


def test_a_bucket_without_tables_gives_a_sentence(s3: Any, bucket: Bucket) -> None:
    with History(bucket) as history:
        with pytest.raises(HistoryError, match=r"^s3://lag-.*/teams/karrot: no such directory"):
            history.groups(WHOLE)
        put(s3, bucket, "events/day=2026-11-20/x.parquet", b"x")
        with pytest.raises(HistoryError, match="has no table lag_minute: run karrot pipeline derive"):
            history.groups(WHOLE)
        put(s3, bucket, "lag_minute/", b"")
        put(s3, bucket, "lag_minute/part-0.parquet", b"x")
        with pytest.raises(HistoryError, match="lag_minute has no data in directories day=YYYY-MM-DD"):
            history.groups(WHOLE)


@pytest.fixture
def broken(request: pytest.FixtureRequest, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """Return a bucket, with something wrong about it."""
    if request.param == "endpoint":
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    elif request.param == "credentials":
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return bucket._replace(name="nobody-made-this") if request.param == "bucket" else bucket


@pytest.mark.parametrize(
    ("broken", "code", "sentence"),
    [
        ("bucket", "tables_refused", "NoSuchBucket"),
        ("endpoint", "tables_unavailable", "Could not connect to the endpoint"),
        ("credentials", "tables_refused", "Unable to locate credentials"),
    ],
    indirect=["broken"],
)
def test_an_unusable_bucket_gives_one_sentence_with_a_code(broken: Bucket, code: str, sentence: str) -> None:
    with (
        History(broken) as history,
        pytest.raises(HistoryFailed, match=rf"^{broken} cannot be listed: .*{sentence}") as raised,
    ):
        history.groups(WHOLE)
    assert raised.value.code == code


def test_only_data_of_the_wanted_days_is_listed_and_no_key_leaves_the_folder_of_the_copies(
    s3: Any, bucket: Bucket, stored: TablesInS3
) -> None:
    names = [
        FILE,
        f"lag_minute/day={DAY}/batch_id=a-1/x.parquet",
        f"lag_minute/day={DAY}/_temporary/x.parquet",
        f"lag_minute/day={DAY}/.x.parquet",
        f"lag_minute/day={DAY}/../../x.parquet",
        f"lag_minute/day={DAY}//x.parquet",
        f"lag_minute/day={DAY}/",
        f"lag_minute/day={DAY}",
        f"lag_minute/day={DAY + timedelta(days=1)}/x.parquet",
        "lag_minute/day=../x.parquet",
        "lag_minute_of_another/day=2026-11-20/x.parquet",
    ]
    for name in names:
        put(s3, bucket, name, b"x")
    listed = stored.files("lag_minute", lambda day: day == DAY)
    assert sorted(each.name for each in listed) == sorted(names[:2])
    assert all(Path(each.path).parent == stored.root for each in listed)


def test_a_listing_is_kept_for_a_second_but_not_if_the_note_was_read_after_it(
    s3: Any, bucket: Bucket, stored: TablesInS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karrot.history.table_files_in_s3._LISTING_S", 1_000)
    days = [DAY + timedelta(days=number) for number in range(3)]

    def found(day: date, *, now: bool = False) -> int:
        put(s3, bucket, f"lag_minute/day={day}/x.parquet", b"x")
        return len(stored.files("lag_minute", lambda _day: True, now=now))

    assert [found(days[0]), found(days[1]), found(days[1], now=True)] == [1, 1, 2]
    assert stored.note() is None
    assert found(days[2]) == 3
    monkeypatch.setattr("karrot.history.table_files_in_s3._LISTING_S", 0)
    assert found(days[2] + timedelta(days=1)) == 4


def test_a_file_is_copied_once_and_again_if_it_was_replaced(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    put(s3, bucket, FILE, b"first")
    assert (contents(stored), contents(stored), gate.asked) == ([b"first"], [b"first"], 1)
    put(s3, bucket, FILE, b"second")
    assert (contents(stored), gate.asked) == ([b"second"], 2)


def test_a_file_that_is_replaced_or_deleted_after_it_was_listed_is_not_read(
    s3: Any, bucket: Bucket, stored: TablesInS3
) -> None:
    put(s3, bucket, FILE, b"first")
    listed = stored.files("lag_minute", lambda _day: True, now=True)
    put(s3, bucket, FILE, b"second")
    with pytest.raises(FilesChanged), stored.at_hand(listed):
        pass
    listed = stored.files("lag_minute", lambda _day: True, now=True)
    s3.delete_object(Bucket=bucket.name, Key=bucket.key(FILE))
    with pytest.raises(FilesChanged), stored.at_hand(listed):
        pass


def test_copies_have_a_largest_total_size_and_the_least_recently_used_make_room(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    for number in range(4):
        put(s3, bucket, f"lag_minute/day={DAY + timedelta(days=number)}/x.parquet", bytes(3_000))
    files = stored.files("lag_minute", lambda _day: True, now=True)
    for file in (*files[:3], files[0], files[3], files[0]):
        with stored.at_hand([file]):
            assert Path(file.path).stat().st_size == 3_000
    assert ([Path(file.path).exists() for file in files], gate.asked) == ([True, False, True, True], 4)
    with stored.at_hand(files[:2]), pytest.raises(HistoryFailed, match=r"are copied$"), stored.at_hand(files[2:]):
        pass
    with pytest.raises(HistoryFailed, match=r"^s3://.* has 0 MiB of data for this answer: at most 0 MiB are copied"):
        contents(stored)
    with stored.at_hand(files[:3]):
        pass


def test_after_the_time_limit_the_copy_goes_on_for_the_next_query(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    put(s3, bucket, FILE, b"first")
    gate.is_open.clear()
    with time_limit(0.2), pytest.raises(HistoryFailed, match=r"^s3://.* did not give the answer within 0\.2 s$"):
        contents(stored)
    gate.is_open.set()
    [file] = stored.files("lag_minute", lambda _day: True, now=True)
    wait_for(Path(file.path).exists)
    assert (contents(stored), gate.asked) == ([b"first"], 1)


def test_a_command_ends_at_its_time_limit_if_s3_accepts_requests_and_never_answers() -> None:
    """The time limit counts from the start of the command, so a slow machine needs more seconds until it connects."""
    asked: list[socket.socket] = []
    limits = iter((1, 4, 16, 64))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        thread = threading.Thread(target=accept_all, args=(silent, asked), daemon=True)
        thread.start()
        environ = os.environ | aws_environment(f"http://127.0.0.1:{silent.getsockname()[1]}")
        while not asked:
            seconds = next(limits)
            command = [sys.executable, "-m", "karrot", "history", "groups", "--tables", "s3://bucket"]
            command += ["--timeout", f"{seconds}s"]
            ended = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
            assert f"s3://bucket did not give the answer within {seconds} s (history_too_slow)." in ended.stderr
    assert len(asked) == 1, "the client gave up by itself and asked again"
    asked[0].close()


def accept_all(silent: socket.socket, asked: list[socket.socket]) -> None:
    with suppress(OSError):  # the test has closed the server
        while True:
            asked.append(silent.accept()[0])


def test_a_copy_that_ends_after_the_tables_were_closed_leaves_nothing(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    for number in range(20):
        put(s3, bucket, f"lag_minute/day={DAY}/{number}.parquet", b"x")
    gate.is_open.clear()
    with time_limit(0.2), pytest.raises(HistoryFailed, match=r"within 0\.2 s$"):
        contents(stored)
    stored.close()
    gate.is_open.set()
    wait_for(lambda: len(stored._copying) == 20 - 8)  # the queued copies do not begin
    assert not stored.root.exists()


def test_many_copies_do_not_delay_a_listing(s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate) -> None:
    for number in range(20):
        put(s3, bucket, f"lag_minute/day={DAY}/{number}.parquet", b"x")
    gate.is_open.clear()
    with time_limit(0.2), pytest.raises(HistoryFailed, match=r"within 0\.2 s$"):
        contents(stored)
    assert stored.days("lag_minute", lambda _day: True) == (DAY,)


def test_queries_at_the_same_time_copy_a_file_once(s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate) -> None:
    put(s3, bucket, FILE, b"first")
    gate.is_open.clear()
    found: list[bytes] = []
    readers = [threading.Thread(target=lambda: found.extend(contents(stored))) for _ in range(3)]
    for reader in readers:
        reader.start()
    wait_for(lambda: sum(stored._copies._uses.values()) == len(readers) + 1)  # one use is that of the copy
    gate.is_open.set()
    for reader in readers:
        reader.join()
    assert (found, gate.asked) == ([b"first"] * 3, 1)


def test_closing_removes_the_copies_and_a_later_process_removes_those_of_a_killed_one(
    s3: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "karrot-tables-left"
    left.mkdir()
    for name in (".lock", "copy.parquet"):
        (left / name).touch()
    monkeypatch.setattr("karrot.history.table_files_in_s3._STARTS_S", -1)
    put(s3, bucket, FILE, b"first")
    first = TablesInS3(bucket, lambda: s3, most_bytes=100)
    assert contents(first) == [b"first"]
    assert list(tmp_path.iterdir()) == [first.root]
    second = TablesInS3(bucket, lambda: s3, most_bytes=100)
    assert contents(first) == [b"first"]  # the folder of a running process stays
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_readers_see_each_object_whole_while_it_is_replaced(s3: Any, bucket: Bucket, tmp_path: Path) -> None:
    days = [DAY + timedelta(days=number) for number in range(3)]
    bodies = []
    for number in range(2):
        of_days = []
        for day in days:
            first = (day - DAY).days * 1440
            rows = [lag_minute_row(first + at, 1000 + number) for at in range(1440 - 700 * number)]
            of_days.append(write_day(tmp_path, "lag_minute", day, rows).read_bytes())
        bodies.append(of_days)
    done = threading.Event()
    turns = 0

    def replace() -> None:
        nonlocal turns
        while not done.is_set():
            for day, body in zip(days, bodies[turns % 2], strict=True):
                put(s3, bucket, f"lag_minute/day={day}/lag_minute.parquet", body)
                done.wait(0.2)
            turns += 1

    for day, body in zip(days, bodies[1], strict=True):
        put(s3, bucket, f"lag_minute/day={day}/lag_minute.parquet", body)
    writer = threading.Thread(target=replace)
    seen = set()
    with History(bucket) as history:
        writer.start()
        try:
            while turns < 3:
                series = history.timeseries(
                    "g", WHOLE, metrics=("lag_min", "lag_max", "events"), granularity=timedelta(days=1)
                )
                assert len(series.points) == len(days)
                seen |= {point.values for point in series.points}
        finally:
            done.set()
            writer.join()
    assert seen == {(1000, 1000, 1440), (1001, 1001, 740)}


# The limits hold for tables in a folder too.


@pytest.fixture
def duck(tables: Path) -> Iterator[Duck]:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    opened = Duck(TablesInFolder(tables), threads=1, memory="16MB", most_rows=10)
    yield opened
    opened.close()


def ask(duck: Duck, query: str) -> list[Row]:
    return duck.rows("lag_minute", lambda _day: True, query, {})


@pytest.mark.parametrize("seconds", [0.2, 0])
def test_a_query_beyond_its_time_limit_gives_one_sentence(duck: Duck, seconds: float) -> None:
    sentence = rf"lag_minute did not give the answer within {seconds} s$"
    with History.limited(seconds), pytest.raises(HistoryFailed, match=sentence):
        ask(duck, "SELECT sum(lag_min + range) FROM {table}, range(1000000000000)")
    assert ask(duck, "SELECT 1 FROM {table}") == [(1,)]


def test_an_answer_beyond_the_limits_of_memory_or_rows_gives_one_sentence(duck: Duck) -> None:
    with pytest.raises(HistoryFailed, match="lag_minute has more than 10 rows"):
        ask(duck, "SELECT range FROM {table}, range(11)")
    assert len(ask(duck, "SELECT range FROM {table}, range(10)")) == 10
    with pytest.raises(HistoryFailed, match="lag_minute needs more than 16MB of memory"):
        ask(duck, "SELECT list(range || 'x' || hash(range)) FROM {table}, range(2000000)")
