"""The password comes from a file or a command, again for new connections, and a wrong one is told without its text."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from karrot.clock import SystemClock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres import PostgresEventLog, passwords
from karrot.eventlog.postgres.connections import Database, DatabaseUrl
from karrot.eventlog.postgres.passwords import KeptPassword, password_of
from karrot.eventlog.postgres.schema import prepare
from karrot.settings.options import Settings
from support.eventlog.appended_events import append_event
from support.eventlog.postgres_server import PostgresServer
from support.waiting import wait_for


class Role:
    """A role of the server with a schema, whose password a test changes."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.server = server
        self.url = server.url(schema).replace("//karrot@", "//rotating@")

    def execute(self, statement: str) -> None:
        with self.server.connect("karrot") as connection:
            connection.execute(statement)

    def change_password(self, password: str) -> None:
        self.execute(f"ALTER ROLE rotating PASSWORD '{password}'")

    def end_its_sessions(self) -> None:
        self.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'rotating'")


@pytest.fixture
def role(server: PostgresServer, schema: str) -> Iterator[Role]:
    found = Role(server, schema)
    found.execute("CREATE ROLE rotating LOGIN PASSWORD 'first'")
    found.execute(f"CREATE SCHEMA {schema} AUTHORIZATION rotating")
    yield found
    found.end_its_sessions()
    found.execute("DROP OWNED BY rotating CASCADE")
    found.execute("DROP ROLE rotating")


def database(url: str, **settings: object) -> Database:
    parsed = DatabaseUrl.parse(url)
    return Database(parsed, password_of(Settings(event_log=url, **settings), parsed))  # type: ignore[arg-type]


def append_through_new_connections(role: Role, log: PostgresEventLog) -> None:
    """Append after the server has ended every session: a request that meets the end of one is refused."""
    role.end_its_sessions()

    def appends() -> bool:
        try:
            append_event(log)
        except LogUnavailableError:
            return False
        return True

    wait_for(appends)


def test_a_file_is_read_again_for_each_connection(role: Role, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    known = database(role.url, event_log_password_file=file)
    log = PostgresEventLog(known, prepare(known, SystemClock()), SystemClock())
    append_event(log)
    role.change_password("second")
    append_event(log)  # open sessions stay
    file.write_text("second\n")
    append_through_new_connections(role, log)
    log.close()


def test_a_wrong_password_is_not_in_the_refusal_and_the_right_one_needs_no_restart(
    role: Role, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_KEPT_S", 0)  # or the pool could connect again with the right one
    file = tmp_path / "password"
    file.write_text("first")
    known = database(role.url, event_log_password_file=file)
    log = PostgresEventLog(known, prepare(known, SystemClock()), SystemClock())
    file.write_text("not-the-password")
    reason = ""

    def both_are_refused() -> bool:
        nonlocal reason
        role.end_its_sessions()  # the pool may have begun one with the right password just before
        try:
            append_event(log)
        except LogUnavailableError as error:
            reason = str(error)
        return "password authentication failed" in reason and log.writable() == reason

    wait_for(both_are_refused)
    assert reason.startswith("cannot connect to PostgreSQL: ")
    assert "not-the-password" not in reason
    file.write_text("first")
    wait_for(lambda: log.writable() is None)
    append_event(log)
    log.close()


def test_a_command_is_run_again_after_its_password_was_changed(
    role: Role, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_KEPT_S", 0.1)
    file = tmp_path / "secret"
    file.write_text("first")
    command = f"{sys.executable} -c \"print(open('{file}').read())\""
    known = database(role.url, event_log_password_command=command)
    log = PostgresEventLog(known, prepare(known, SystemClock()), SystemClock())
    append_event(log)
    role.change_password("second")
    file.write_text("second")
    append_through_new_connections(role, log)
    log.close()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("sh -c 'echo no vault >&2; exit 3'", "failed with exit code 3: no vault"),
        ("sh -c 'kill -9 $$'", "KARROT_EVENT_LOG_PASSWORD_COMMAND failed with exit code -9"),
        ("true", "the output of KARROT_EVENT_LOG_PASSWORD_COMMAND is empty: it must be the password for PostgreSQL"),
        ("no-such-program --at-all", "No such file or directory: 'no-such-program'"),
        ("head -c 70000 /dev/zero", "KARROT_EVENT_LOG_PASSWORD_COMMAND has more than 65536 bytes: it must be the "),
        ("printf '\\377'", "the output of KARROT_EVENT_LOG_PASSWORD_COMMAND is not text in UTF-8"),
        ("printf '# vault\\nfirst'", "the output of KARROT_EVENT_LOG_PASSWORD_COMMAND has more than one line"),
    ],
)
def test_a_command_without_a_password_is_told(role: Role, command: str, sentence: str) -> None:
    with pytest.raises(LogUnavailableError) as caught:
        prepare(database(role.url, event_log_password_command=command), SystemClock())
    assert str(caught.value).startswith("cannot connect to PostgreSQL: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty: it must be the password for PostgreSQL"),
        (b"x" * 70_000, "has more than 65536 bytes: it must be the password for PostgreSQL alone"),
        (b"first\0", "has more than one line"),
    ],
    ids=["empty", "too long", "with a NUL"],
)
def test_a_file_without_a_password_is_told(role: Role, tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(LogUnavailableError, match=sentence):
        prepare(database(role.url, event_log_password_file=file), SystemClock())
    file.unlink()
    with pytest.raises(LogUnavailableError, match="No such file or directory"):
        prepare(database(role.url, event_log_password_file=file), SystemClock())


def test_a_slow_command_delays_no_request(role: Role, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = f"sh -c 'while [ ! -e {gate} ]; do sleep 0.05; done; echo first'"
    gate.touch()
    known = database(role.url, event_log_password_command=slow)
    opened = prepare(known, SystemClock())
    gate.unlink()
    late = database(role.url, event_log_password_command=slow)
    log = PostgresEventLog(late, opened, SystemClock())
    for _ in range(2):  # the command runs until the gate is there
        with pytest.raises(LogUnavailableError, match=r"did not accept a connection within 1\.2 s"):
            log.read(0)
    gate.touch()
    wait_for(lambda: log.writable() is None)
    assert list(log.read(0)) == []
    log.close()


def test_a_password_is_kept_for_connections_that_open_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter("abc")
    password = KeptPassword(lambda: next(made))
    assert [password(), password()] == ["a", "a"]  # a server that is away must not run the command for each attempt
    monkeypatch.setattr(passwords, "_KEPT_S", 0)
    eager = KeptPassword(lambda: next(made))
    assert [eager(), eager()] == ["b", "c"]
