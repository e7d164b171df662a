"""``karrot log restored``: after rows were put back to an earlier state, no new event gets the id of a lost event."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from karrot.clock import SystemClock
from karrot.eventlog.event_log import EventLog
from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import DATABASE, PASSWORD, USER, PostgresServer, running_postgres
from support.eventlog.sqlite_log import open_sqlite
from support.karrot_command import run_karrot

BEFORE_MIGRATION_4 = (
    "DROP TABLE karrot.earlier_ids; ALTER TABLE karrot.log DROP COLUMN run; "
    "UPDATE karrot.schema_version SET version = 3"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def environment(server: PostgresServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a Karrot on PostgreSQL, with a schema that does not exist yet."""
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    yield {"KARROT_EVENT_LOG": server.url(), "KARROT_EVENT_LOG_PASSWORD_FILE": str(password)}
    with server.connect(DATABASE) as connection:
        connection.execute("DROP SCHEMA karrot CASCADE")


def run_restored(env: dict[str, str]) -> str:
    """Run the command in a process of its own, as beside a service. Return what it prints."""
    command = [sys.executable, "-m", "karrot", "log", "restored"]
    ran = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def ids(log: EventLog) -> list[str]:
    return [each.event_id for each in stored_events(log)]


def assert_no_id_is_given_again(log: EventLog, forget_newest: Callable[[], None], env: dict[str, str]) -> None:
    """Lose the newest event of an open log, run the command, and compare the ids of the lost and the new event."""
    append_event(log, consumer="kept")
    append_event(log, consumer="lost")
    told = ids(log)
    forget_newest()
    said = run_restored(env)
    append_event(log, consumer="new")
    kept, new = ids(log)
    assert kept == told[0]
    assert new not in told
    assert said == f"new events get the log id {log.log_id}\n"
    assert new == f"{log.log_id}-2"


def forget_newest(server: PostgresServer) -> None:
    with server.connect(DATABASE) as connection:
        connection.execute("DELETE FROM karrot.events WHERE seq = 2")
        connection.execute("UPDATE karrot.log SET last_seq = 1")


def test_rows_of_postgresql_that_were_put_back_give_no_id_again(
    server: PostgresServer, environment: dict[str, str]
) -> None:
    with open_postgres(server, "karrot", SystemClock()) as log:
        assert_no_id_is_given_again(log, partial(forget_newest, server), environment)


def test_rows_of_sqlite_that_were_put_back_give_no_id_again(tmp_path: Path) -> None:
    def forget_newest() -> None:
        with closing(apsw.Connection(str(tmp_path / "events.db"))) as connection:
            connection.execute("DELETE FROM events WHERE seq = 2; UPDATE sqlite_sequence SET seq = 1")
            connection.execute("UPDATE log SET events = 1")

    with closing(open_sqlite(tmp_path, SystemClock())) as log:
        assert_no_id_is_given_again(log, forget_newest, {"KARROT_DATA_DIR": str(tmp_path)})


def rows(server: PostgresServer) -> Callable[[], None]:
    return partial(forget_newest, server)


def dump_of_an_older_karrot(server: PostgresServer) -> Callable[[], None]:
    access = ("-h", "127.0.0.1", "-p", server.port, "-U", USER, "-d", DATABASE)
    dump = server.home / "older.dump"
    with server.connect(DATABASE) as connection:
        connection.execute(BEFORE_MIGRATION_4)
    server.run("pg_dump", *access, "-n", "karrot", "-Fc", "-f", dump)

    def restore() -> None:
        with server.connect(DATABASE) as connection:
            connection.execute("DROP SCHEMA karrot CASCADE")
        server.run("pg_restore", *access, "--single-transaction", dump)

    return restore


@pytest.mark.parametrize("keep", [rows, dump_of_an_older_karrot])
def test_what_was_put_back_into_postgresql_while_karrot_was_stopped_gives_no_id_again(
    server: PostgresServer, environment: dict[str, str], keep: Callable[[PostgresServer], Callable[[], None]]
) -> None:
    with open_postgres(server, "karrot", SystemClock()) as log:
        append_event(log, consumer="kept")
    put_back = keep(server)
    with open_postgres(server, "karrot", SystemClock()) as log:
        append_event(log, consumer="lost")
        told = ids(log)
    put_back()
    run_restored(environment)
    with open_postgres(server, "karrot", SystemClock()) as log:
        append_event(log, consumer="new")
        assert ids(log)[0] == told[0]
        assert ids(log)[1] not in told


def test_without_an_event_log_the_command_creates_none(tmp_path: Path) -> None:
    ran = run_karrot("log", "restored", env={"KARROT_DATA_DIR": str(tmp_path / "data")})
    assert ran.exit_code == 2
    assert ran.stderr == f"karrot: there is no event log in KARROT_DATA_DIR, which is {tmp_path / 'data'}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_changes_no_file_beside_a_log_in_memory(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path, SystemClock())) as log:
        log_id = log.log_id
    env = {"KARROT_EVENT_LOG": "memory", "KARROT_WORKERS": "1", "KARROT_DATA_DIR": str(tmp_path)}
    ran = run_karrot("log", "restored", env=env)
    assert ran.exit_code == 2
    assert (tmp_path / "log-id").read_text() == f"{log_id}\n"


def test_another_user_such_as_root_leaves_no_files_that_karrot_cannot_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_sqlite(tmp_path, SystemClock()).close()
    owner = os.geteuid()
    for name in ("commit.lock", "leader.lock", "log-id"):
        (tmp_path / name).unlink()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    ran = run_karrot("log", "restored", env={"KARROT_DATA_DIR": str(tmp_path)})
    assert ran.exit_code == 2
    assert f"belongs to the user with the id {owner}: run the command as this user" in ran.stderr
    assert not (tmp_path / "commit.lock").exists()
