"""What differs for tables in S3: errors, the copies, and servers that are silent."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from karrot.history.answers_and_errors import (
    HistoryError,
    HistoryFailed,
)
from karrot.history.delta_tables import DataFile, forget_credentials
from karrot.history.duckdb_reader import Duck, Row, TablesAtOneTime
from karrot.history.table_files_in_folder import FileGone, TablesInFolder, time_limit
from karrot.history.table_files_in_s3 import TablesInS3
from karrot.history.table_queries import History
from karrot.history.time_ranges import TimeRange
from karrot.settings.types import Bucket
from support.pipeline.mirrored_tables import Mirror, aws_environment
from support.pipeline.row_times import DAY, minute_at
from support.pipeline.table_files import lag_minute_row, write_rows
from support.waiting import wait_for

WHOLE = TimeRange(minute_at(0), minute_at(3 * 1440))
FILE = f"batch_id=a/day={DAY}/part-0.parquet"


class Gate:
    """A client that holds every GET of an object until the gate is open, and counts them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.is_open = threading.Event()
        self.asked = self.answered = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_object(self, **asked: Any) -> Any:
        self.asked += 1
        assert self.is_open.wait(30)
        try:
            return self._client.get_object(**asked)
        finally:
            self.answered += 1


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


def put(s3: Any, bucket: Bucket, path: str, body: bytes, table: str = "lag_minute") -> None:
    s3.put_object(Bucket=bucket.name, Key=bucket.key(f"{table}/{path}"), Body=body)


def stored_files(stored: TablesInS3, *paths: str, size: int = 6) -> dict[str, DataFile]:
    files = [DataFile(path, DAY, size, 1) for path in paths or (FILE,)]
    return {stored.path("lag_minute", file): file for file in files}


def contents(stored: TablesInS3, *paths: str) -> list[bytes]:
    files = stored_files(stored, *paths)
    with stored.at_hand("lag_minute", files):
        return [Path(path).read_bytes() for path in files]


def test_a_bucket_without_tables_gives_a_sentence(s3: Any, bucket: Bucket) -> None:
    with History(bucket) as history:
        with pytest.raises(HistoryError, match=r"^s3://lag-.*/teams/karrot: no such directory"):
            history.groups(WHOLE)
        put(s3, bucket, "day=2026-11-20/x.parquet", b"x", table="lag_minute_of_others")
        with pytest.raises(HistoryError, match="has no table lag_minute: run karrot pipeline run --once --only derive"):
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
        pytest.raises(HistoryFailed, match=rf"^{broken}/_derived.json cannot be read: .*{sentence}") as raised,
    ):
        history.groups(WHOLE)
    assert raised.value.code == code


def test_no_name_leaves_the_folder_of_the_copies(stored: TablesInS3) -> None:
    for path in stored_files(stored, "../../x.parquet", "/x.parquet", "x/" * 500):
        assert Path(path).parent == stored.root


def test_the_listing_of_a_version_is_kept_and_the_newest_version_is_always_listed(
    s3: Any, bucket: Bucket, stored: TablesInS3, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(s3, *bucket, tables)

    def days(version: int | None) -> int:
        mirror.update()
        return len(stored.listed("lag_minute", version) or ())

    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    assert [days(1), days(None)] == [1, 1]
    write_rows(tables, "lag_minute", [lag_minute_row(1440, 5)])
    assert [days(None), days(1), days(2), days(2)] == [2, 1, 2, 2]
    shutil.rmtree(tables / "lag_minute")
    assert [days(2), days(None)] == [2, 0]
    monkeypatch.setattr("karrot.history.table_files_in_s3._KEPT_S", 0)
    assert stored.listed("lag_minute", 2) is None


def test_a_file_is_copied_once(s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate) -> None:
    put(s3, bucket, FILE, b"first")
    assert (contents(stored), contents(stored), gate.asked) == ([b"first"], [b"first"], 1)


def test_a_file_that_is_deleted_after_it_was_listed_is_named(s3: Any, bucket: Bucket, stored: TablesInS3) -> None:
    put(s3, bucket, FILE, b"first")
    gone = FILE.replace("batch_id=a", "batch_id=b")
    with pytest.raises(FileGone, match=rf"^{bucket}/lag_minute/{gone}$"):
        contents(stored, FILE, gone)


def test_copies_have_a_largest_total_size_and_the_least_recently_used_make_room(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    paths = [f"{number}.parquet" for number in range(4)]
    for path in paths:
        put(s3, bucket, path, bytes(3_000))
    files = [*stored_files(stored, *paths, size=3_000).items()]

    def at_hand(chosen: list[tuple[str, DataFile]]) -> AbstractContextManager[None]:
        return stored.at_hand("lag_minute", dict(chosen))

    for file in (*files[:3], files[0], files[3], files[0]):
        with at_hand([file]):
            assert Path(file[0]).stat().st_size == 3_000
    assert ([Path(path).exists() for path, _ in files], gate.asked) == ([True, False, True, True], 4)
    with at_hand(files[:2]), pytest.raises(HistoryFailed, match=r"are copied$"), at_hand(files[2:]):
        pass
    sentence = r"^s3://.* has 0 MiB of data for this answer: at most 0 MiB are copied"
    with pytest.raises(HistoryFailed, match=sentence), at_hand(files):
        pass
    with at_hand(files[:3]):
        pass


def test_after_the_time_limit_the_copy_goes_on_for_the_next_query(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    put(s3, bucket, FILE, b"first")
    gate.is_open.clear()
    with time_limit(0.2), pytest.raises(HistoryFailed, match=r"^s3://.* did not give the answer within 0\.2 s$"):
        contents(stored)
    gate.is_open.set()
    [path] = stored_files(stored)
    wait_for(Path(path).exists)
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


@pytest.fixture
def without_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[str]]]:
    """Start a server that says that there is no note, and refuses all other requests after an event was set.

    The list has the credentials of the requests that were refused.
    """
    answers, refused = threading.Event(), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_note = "_derived.json" in self.path
            assert is_note or answers.wait(60)
            if not is_note:
                refused.append(self.headers["Authorization"])
            body = f"<Error><Code>{'NoSuchKey' if is_note else 'AccessDenied'}</Code></Error>".encode()
            self.send_response(404 if is_note else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # the client has left
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in aws_environment(f"http://127.0.0.1:{server.server_address[1]}").items():
            monkeypatch.setenv(name, value)
        yield answers, refused
        answers.set()
        server.shutdown()


def test_logs_that_s3_refuses_give_one_sentence_with_a_code_and_the_credentials_are_read_again(
    without_logs: tuple[threading.Event, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers, refused = without_logs
    answers.set()
    forget_credentials()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with History(Bucket("bucket", "")) as history:
        for key in ("AKIDFIRST", "AKIDSECOND"):
            (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=x\n")
            sentence = r"^s3://bucket/lag_minute cannot be listed: [^\n\x1b]*AccessDenied"
            with pytest.raises(HistoryFailed, match=sentence) as raised:
                history.groups(WHOLE)
            assert raised.value.code == "tables_refused"
            assert f"Credential={key}/" in refused[-1]


def test_credentials_that_cannot_be_read_give_one_sentence_with_a_code(
    stored: TablesInS3, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_credentials()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    sentence = r" cannot be listed: AWS credentials are missing or cannot be fetched: The config profile \(nobody\) "
    with pytest.raises(HistoryFailed, match=rf"^{bucket}/lag_minute{sentence}") as raised:
        stored.listed("lag_minute", None)
    assert raised.value.code == "tables_refused"


def test_a_command_ends_at_its_time_limit_if_s3_is_silent_about_a_log(
    without_logs: tuple[threading.Event, list[str]],
) -> None:
    command = [sys.executable, "-m", "karrot", "history", "groups", "--tables", "s3://bucket", "--timeout", "8s"]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=50
    )  # the server is silent for longer
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("karrot: s3://bucket did not give the answer within 8 s (history_too_slow).")
    assert len(ended.stderr.splitlines()) == 1
    assert not without_logs[0].is_set()


def test_a_copy_that_ends_after_the_tables_were_closed_leaves_nothing(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate
) -> None:
    paths = [f"{number}.parquet" for number in range(20)]
    for path in paths:
        put(s3, bucket, path, b"x")
    gate.is_open.clear()
    with time_limit(0.2), pytest.raises(HistoryFailed, match=r"within 0\.2 s$"):
        contents(stored, *paths)
    stored.close()
    gate.is_open.set()
    wait_for(lambda: gate.answered == 8)  # the queued copies do not begin
    assert gate.asked == 8
    assert not stored.root.exists()


def test_many_copies_do_not_delay_a_listing(
    s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate, tables: Path
) -> None:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    Mirror(s3, *bucket, tables).update()
    gate.is_open.clear()
    with time_limit(0.2), pytest.raises(HistoryFailed, match=r"within 0\.2 s$"):
        contents(stored, *(f"{number}.parquet" for number in range(20)))
    [file] = stored.listed("lag_minute", None) or ()
    assert file.day == DAY


def test_queries_at_the_same_time_copy_a_file_once(s3: Any, bucket: Bucket, stored: TablesInS3, gate: Gate) -> None:
    put(s3, bucket, FILE, b"first")
    gate.is_open.clear()
    found: list[bytes] = []
    readers = [threading.Thread(target=lambda: found.extend(contents(stored))) for _ in range(3)]
    for reader in readers:
        reader.start()
    wait_for(lambda: [each.uses for each in stored._copies.values()] == [len(readers)])
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


# The limits hold for tables in a folder too.


@pytest.fixture
def answer(tables: Path) -> Iterator[TablesAtOneTime]:
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    duck = Duck(threads=1, memory="16MB", most_rows=10)
    yield TablesAtOneTime(TablesInFolder(tables), duck)
    duck.close()


def ask(answer: TablesAtOneTime, query: str) -> list[Row]:
    return answer.rows("lag_minute", lambda _day: True, query, {})


@pytest.mark.parametrize("seconds", [0.2, 0])
def test_a_query_beyond_its_time_limit_gives_one_sentence(answer: TablesAtOneTime, seconds: float) -> None:
    sentence = rf"lag_minute did not give the answer within {seconds} s$"
    with History.limited(seconds), pytest.raises(HistoryFailed, match=sentence):
        ask(answer, "SELECT sum(lag_min + range) FROM {table}, range(1000000000000)")
    assert ask(answer, "SELECT 1 FROM {table}") == [(1,)]


def test_an_answer_beyond_the_limits_of_memory_or_rows_gives_one_sentence(answer: TablesAtOneTime) -> None:
    with pytest.raises(HistoryFailed, match="lag_minute has more than 10 rows"):
        ask(answer, "SELECT range FROM {table}, range(11)")
    assert len(ask(answer, "SELECT range FROM {table}, range(10)")) == 10
    with pytest.raises(HistoryFailed, match="lag_minute needs more than 16MB of memory"):
        ask(answer, "SELECT list(range || 'x' || hash(range)) FROM {table}, range(2000000)")


def test_a_command_puts_what_exceeds_the_memory_into_temporary_files(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write_rows(tables, "lag_minute", [lag_minute_row(0, 5)])
    query = "SELECT count(*) FROM (SELECT hash(range) AS h FROM {table}, range(3000000) ORDER BY h LIMIT 2900000)"
    for spills in (False, True):
        with History(tables, memory="32MB", spills=spills) as history:
            if spills:
                assert ask(history._tables, query) == [(2_900_000,)]
            else:
                with pytest.raises(HistoryFailed, match="needs more than 32MB"):
                    ask(history._tables, query)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("karrot-duckdb")] == []
