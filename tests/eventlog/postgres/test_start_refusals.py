"""A database that could lose events, or that Karrot must not change, is refused at the start with a sentence."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from karrot.clock import SystemClock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres.connections import Database, DatabaseUrl
from karrot.eventlog.postgres.schema import MIGRATIONS, prepare
from support.eventlog.appended_events import append_event
from support.eventlog.pgbouncer import running_pgbouncer
from support.eventlog.postgres_server import PASSWORD, PostgresServer, postgres_home
from support.waiting import wait_for


def refusal(url: str, password: str = PASSWORD) -> str:
    """The sentence with which a start on this database ends."""
    with pytest.raises(LogUnavailableError) as caught:
        prepare(Database(DatabaseUrl.parse(url), lambda: password), SystemClock())
    return str(caught.value)


@contextmanager
def changed(server: PostgresServer, setting: str, value: str) -> Iterator[None]:
    """Change a setting of the server that needs no restart."""
    with server.connect() as connection:

        def reload() -> None:
            connection.execute("SELECT pg_reload_conf()")

        def is_set() -> bool:
            with server.connect() as other:
                found = other.execute("SELECT current_setting(%s)", (setting,)).fetchone()
            return found == (value,)

        before = connection.execute("SELECT current_setting(%s)", (setting,)).fetchone()
        connection.execute(f"ALTER SYSTEM SET {setting} = {value}")
        reload()
        wait_for(is_set)
        try:
            yield
        finally:
            connection.execute(f"ALTER SYSTEM RESET {setting}")
            reload()
            wait_for(lambda: connection.execute("SELECT current_setting(%s)", (setting,)).fetchone() == before)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_a_crash_would_damage_is_refused_in_each_session(
    server: PostgresServer, schema: str, database: Database, setting: str
) -> None:
    sentence = (
        f"cannot connect to PostgreSQL: the server has {setting}=off: a crash of the machine would damage the database"
    )
    prepare(database, SystemClock())
    with changed(server, setting, "off"):
        with pytest.raises(LogUnavailableError, match=f"^{sentence}$"):  # after a failover, for example
            database.open()
        assert refusal(server.url(schema)) == sentence
    prepare(database, SystemClock())


@pytest.mark.parametrize(
    ("setting", "value", "used"),
    [
        ("synchronous_commit", "off", "on"),
        ("synchronous_commit", "remote_apply", "remote_apply"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("client_encoding", "LATIN1", "UTF8"),
    ],
)
def test_a_setting_of_the_role_makes_no_session_unsafe(
    server: PostgresServer, database: Database, setting: str, value: str, used: str
) -> None:
    with server.connect() as connection:
        connection.execute(f"ALTER ROLE karrot SET {setting} = '{value}'")
        try:
            with closing(database.open()) as session:
                assert session.execute(f"SHOW {setting}").fetchone() == (used,)
        finally:
            connection.execute(f"ALTER ROLE karrot RESET {setting}")


def test_a_standby_is_refused(server: PostgresServer, schema: str) -> None:
    with postgres_home() as home:
        standby = PostgresServer(home, server.bin)
        standby.follow(server)
        standby.start()
        try:
            assert refusal(standby.url(schema)).startswith("cannot connect to PostgreSQL: ")
            assert "session is read-only" in refusal(standby.url(schema))
            assert refusal(standby.url(schema, target_session_attrs="any")) == (
                "cannot connect to PostgreSQL: the database is read-only: connect to the primary, with all hosts and "
                "target_session_attrs=read-write"
            )
            both = f"postgresql://karrot@127.0.0.1:{standby.port},127.0.0.1:{server.port}/karrot?schema={schema}"
            prepare(Database(DatabaseUrl.parse(both), lambda: PASSWORD), SystemClock())
        finally:
            standby.stop()


def test_a_schema_of_another_program_is_refused_and_not_changed(server: PostgresServer, schema: str) -> None:
    with server.connect("karrot") as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.log (note text)")
        assert refusal(server.url(schema)) == (
            f"the schema {schema} holds tables of another program: choose another one with ?schema=NAME in "
            "KARROT_EVENT_LOG"
        )
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        assert tables == [("log",)]


def test_a_schema_of_a_newer_karrot_is_refused(server: PostgresServer, schema: str, database: Database) -> None:
    prepare(database, SystemClock())
    with server.connect("karrot") as connection:
        connection.execute(f"UPDATE {schema}.schema_version SET version = 99")
    assert refusal(server.url(schema)) == (
        f"the event log has schema version 99, but this Karrot supports versions up to {len(MIGRATIONS)}: start the "
        "newer Karrot again, or use another schema (?schema=NAME)"
    )


def test_a_database_in_another_encoding_is_refused(server: PostgresServer, schema: str) -> None:
    with server.connect() as connection:
        connection.execute("CREATE DATABASE latin ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            assert refusal(server.url(schema).replace("/karrot?", "/latin?")) == (
                "the database's encoding must be UTF8: create it with ENCODING 'UTF8'"
            )
        finally:
            connection.execute("DROP DATABASE latin")


def test_a_role_without_rights_is_refused(server: PostgresServer, schema: str) -> None:
    with server.connect("karrot") as connection:
        connection.execute(f"CREATE ROLE stranger LOGIN PASSWORD '{PASSWORD}'")
        try:
            said = refusal(server.url(schema).replace("//karrot@", "//stranger@"))
        finally:
            connection.execute("DROP ROLE stranger")
    assert said.startswith(f"the schema {schema} of stranger@127.0.0.1/karrot cannot be used: permission denied")


@pytest.mark.parametrize(
    ("pool_mode", "sentence"),
    [
        ("transaction", "a pooler (such as PgBouncer with pool_mode=transaction) gives each transaction another "),
        ("statement", "the schema {} of karrot@127.0.0.1/karrot cannot be used: transaction blocks not allowed in "),
    ],
)
def test_a_pooler_without_sessions_is_refused(
    server: PostgresServer, schema: str, pool_mode: str, sentence: str
) -> None:
    with running_pgbouncer(server, pool_mode) as port:
        assert refusal(server.url(schema, port=port)).startswith(sentence.format(schema))
    with server.connect("karrot") as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,)


def test_a_pooler_with_sessions_serves_appends_and_one_leader(server: PostgresServer, schema: str) -> None:
    with running_pgbouncer(server, "session") as port:
        database = Database(DatabaseUrl.parse(server.url(schema, port=port)), lambda: PASSWORD)
        clock = SystemClock()
        logs = [PostgresEventLog(database, prepare(database, clock), clock) for _ in range(2)]
        assert [append_event(log).seq for log in logs] == [1, 2]
        assert [log.lead() for log in logs] == [True, False]
        logs[0].close()
        wait_for(logs[1].lead)
        logs[1].close()


def test_a_server_that_is_away_is_refused(server: PostgresServer, schema: str) -> None:
    assert refusal(server.url(schema, port=1)).startswith("cannot connect to PostgreSQL: ")
