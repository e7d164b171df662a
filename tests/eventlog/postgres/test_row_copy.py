"""What a copy does with PostgreSQL's own parts: columns, blocks, locks, connections and passwords."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from karrot.clock import SystemClock
from karrot.eventlog.base import Damaged, EventLog
from karrot.eventlog.copied_tables import EVENTS, STATE
from karrot.eventlog.log_copy import UnfinishedCopyError
from karrot.eventlog.opening import database_of_settings
from karrot.eventlog.postgres.connections import Database
from karrot.eventlog.postgres.row_copy import PostgresCopySource, PostgresCopyTarget
from karrot.eventlog.postgres.schema import prepare
from karrot.eventlog.rows import Row
from karrot.settings.options import Settings
from support.eventlog.appended_events import append_event
from support.eventlog.log_copies import RETENTION_MS, copy, everything, fill, serving
from support.eventlog.log_copy_contract import NewPlace
from support.eventlog.postgres_server import PostgresServer
from support.karrot_command import run_karrot
from support.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_every_column_of_the_schema_is_copied(database: Database) -> None:
    """A migration that adds a column or a table must add it to the copy too."""
    prepare(database, SystemClock())
    sql = (
        "SELECT table_name, array_agg(column_name::text) FROM information_schema.columns "
        "WHERE table_schema = current_schema() GROUP BY table_name"
    )
    with closing(database.connect()) as connection:
        columns = {name: set(names) for name, names in connection.execute(sql)}
    # The target has its own row of log, its own blocks and its own processes; kept_events and events_1 are the events.
    assert columns.pop("log") == {
        "id", "log_id", "log_ms", "wall_ms", "first_seq", "last_seq", "groups", "log_end_bytes", "block",
        "block_bytes", "block_ms", "leader", "leader_name", "epoch",
    }  # fmt: skip
    for own in ("blocks", "writers", "schema_version", "kept_events", "events_1"):
        del columns[own]
    columns["events"].remove("block")
    columns["rejects"].remove("id")  # the copy numbers them again, in the same order
    assert columns == {table.name: set(table.columns) for table in (EVENTS, *STATE)}


def test_damaged_rows_are_copied_as_they_are(new_schema: NewPlace, new_directory: NewPlace, clock: ManualClock) -> None:
    source, target, back = new_directory(), new_schema(), new_directory()
    with serving(source, clock) as log:
        for _ in range(4):
            append_event(log)
    with closing(apsw.Connection(str(source.data_dir / "events.db"))) as file:
        file.execute("UPDATE events SET body = x'00ff' WHERE seq = 1")
        file.execute("UPDATE events SET source = CAST(x'f700' AS TEXT) WHERE seq = 2")
        file.execute("UPDATE events SET received_at_ms = 'text' WHERE seq = 3")
        file.execute("UPDATE groups SET state = x'00'")
        file.execute("INSERT INTO counters VALUES (CAST(x'6100' AS TEXT), '[]', 1.0)")
        file.execute("DELETE FROM counters WHERE name <> CAST(x'6100' AS TEXT)")
    result = copy(source, target, clock)
    assert (dict(+result.damaged), dict(+result.left_out)) == ({"events": 3, "groups": 1}, {"counters": 1})
    result = copy(target, back, clock)
    assert (dict(+result.damaged), dict(+result.left_out)) == ({"events": 3, "groups": 1}, {})
    for place in (target, back):
        with serving(place, clock) as log:
            assert log.read(0, 3) == [Damaged(log.log_id, seq) for seq in (1, 2, 3)]
            assert log.event(4) is not None
            assert (list(log.latest()), list(log.counters())) == ([], [])


def test_copied_events_are_deleted_in_blocks_by_their_age(
    new_schema: NewPlace, new_directory: NewPlace, clock: ManualClock
) -> None:
    """If all copied events were in one block, its table would stay until the newest of them is too old."""
    source, target = new_directory(), new_schema()
    with serving(source, clock) as log:
        for _ in range(16):
            append_event(log)
            clock.advance(RETENTION_MS // 20)
    copy(source, target, clock, page=1)
    assert count_blocks(target) == 6
    with serving(target, clock) as log:
        clock.advance(RETENTION_MS // 2 - 60_000)
        assert log.prune() == 6
        assert [event.seq for event in log.read(0)] == list(range(7, 17))
        assert count_blocks(target) == 5  # two of three events each were dropped, and the deletion began one
        assert append_event(log).seq == 17


def test_a_source_that_takes_events_during_the_copy_gives_no_finished_copy(
    new_schema: NewPlace, new_directory: NewPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that does not lead holds no lock. So the copy looks whether the source has changed."""
    source, target = new_schema(), new_directory()
    rows = PostgresCopySource.rows
    with serving(source, clock) as log:
        append_event(log)

        def rows_and_an_event(self: PostgresCopySource, table: Any) -> Iterator[Sequence[Row]]:
            append_event(log)
            return rows(self, table)

        with monkeypatch.context() as patched:
            patched.setattr(PostgresCopySource, "rows", rows_and_an_event)
            with pytest.raises(UnfinishedCopyError, match="a Karrot has written to the source during the copy"):
                copy(source, target, clock)
        before = everything(log)
    assert copy(source, target, clock).is_finished
    with serving(target, clock) as log:
        assert everything(log) == before


def test_a_target_that_takes_events_during_the_copy_is_refused(
    new_schema: NewPlace, new_directory: NewPlace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = new_directory(), new_schema()
    add = PostgresCopyTarget.add
    with serving(source, clock) as log:
        for _ in range(4):
            append_event(log)

    def add_after_another(log: EventLog) -> Any:
        def add_one(self: PostgresCopyTarget, events: Sequence[Row]) -> None:
            append_event(log)
            add(self, events)

        return add_one

    with serving(target, clock) as running, monkeypatch.context() as patched:
        patched.setattr(PostgresCopyTarget, "add", add_after_another(running))
        with pytest.raises(UnfinishedCopyError, match=r"has taken events during the copy \(it has 1 instead of 0\)"):
            copy(source, target, clock)


def test_a_copy_continues_after_the_connection_was_lost(
    server: PostgresServer,
    new_schema: NewPlace,
    new_directory: NewPlace,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = new_directory(), new_schema()
    fill_state = PostgresCopyTarget.fill
    with serving(source, clock) as log:
        fill(log, clock)
        before = everything(log)

    def cut_off(self: PostgresCopyTarget, *arguments: Any) -> None:
        fill_state(self, *arguments)
        with server.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (self._connection.info.backend_pid,))

    with monkeypatch.context() as patched:
        patched.setattr(PostgresCopyTarget, "fill", cut_off)
        with pytest.raises(UnfinishedCopyError, match="The same command continues it"):
            copy(source, target, clock)
    assert copy(source, target, clock).copied == 0
    with serving(target, clock) as log:
        assert everything(log) == before


def test_the_passwords_of_two_databases_come_from_two_files(
    server: PostgresServer, schema: str, new_schema: NewPlace, tmp_path: Path
) -> None:
    source, target = new_schema(), new_schema()
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    with serving(source, SystemClock()) as log:
        append_event(log)
    with server.connect("karrot") as connection:
        connection.execute(f"CREATE ROLE {schema} LOGIN PASSWORD 'another'")
        connection.execute(f"CREATE SCHEMA {schema}_9 AUTHORIZATION {schema}")
    (tmp_path / "another").write_text("another\n")
    to_other = server.url(f"{schema}_9").replace("karrot@", f"{schema}@")
    places = ["log", "copy", "--from", source.event_log, "--to", to_other]
    files = ["--from-password-file", str(source.event_log_password_file), "--to-password-file", f"{tmp_path}/another"]
    env = {"KARROT_EVENT_LOG_PASSWORD_FILE": str(wrong)}
    try:
        refused = run_karrot(*places, *files[:2], env=env)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "password authentication failed" in refused.stderr
        done = run_karrot(*places, *files, env=env)
        assert done.exit_code == 0, done.stderr
        same = run_karrot(*places, *files[:2], env={"KARROT_EVENT_LOG_PASSWORD_COMMAND": "echo another"})
        assert "already has the whole log" in same.stdout
    finally:
        with server.connect("karrot") as connection:
            connection.execute(f"DROP OWNED BY {schema} CASCADE")
            connection.execute(f"DROP ROLE {schema}")
    assert target.event_log != to_other


def count_blocks(place: Settings) -> int:
    with closing(database_of_settings(place).connect()) as connection:
        return len(connection.execute("SELECT block FROM blocks").fetchall())
