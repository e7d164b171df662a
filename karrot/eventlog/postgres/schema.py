"""Creates and migrates Karrot's tables in PostgreSQL, and refuses a database that could lose events.

The tables are in a PostgreSQL schema of their own. Names of groups are in UTF-8 as ``bytea``: ``text`` cannot hold NUL,
and ``bytea`` sorts as SQLite does.

The row of ``log`` is the lock of every commit. A commit takes its sequence numbers from this row, and the row stays
locked until the commit is visible. So events become visible in the order of their sequence numbers and without gaps: a
reader cannot miss an event. An advisory lock would need one more statement.

Events are in partitions, which Karrot calls blocks. Karrot deletes a whole block by dropping its table, which needs no
vacuum. ``log.first_seq`` is the oldest event that is not deleted. Older events may still be in the oldest block, and
the view ``kept_events`` hides them.
"""

import contextlib
import secrets
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import structlog
from psycopg import sql

from karrot.clock import Anchor, Clock
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres.connections import Database, Session, one_line

_APPLICATION = "karrot"
"""The value that identifies Karrot's schema in `schema_version`."""

_OLDEST_SERVER = 140000
_FIRST_BLOCK = 1
_START_S = 30.0
"""How long a migration waits for readers."""

_LOCK_TIMEOUT = "800ms"
_PAUSE_S = 0.5
_MIGRATION_LOCK = 0x4B41
"""The first key of the advisory lock that one process holds while it migrates a schema."""

_VERSION_1 = """
CREATE TABLE log (
    id integer PRIMARY KEY CHECK (id = 1),
    log_id text NOT NULL,
    log_ms bigint NOT NULL,       -- the log's own time, at the newest commit
    wall_ms bigint NOT NULL,      -- the database's clock, at the newest commit
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    groups bigint NOT NULL,
    log_end_bytes bigint NOT NULL,
    block integer NOT NULL,       -- the newest block of events
    block_bytes bigint NOT NULL,
    block_ms bigint NOT NULL,     -- the log time at which the block began
    leader text,                  -- the token of the process that leads
    leader_name text,
    epoch bigint NOT NULL         -- how many times the lead was taken
) WITH (fillfactor = 10);
CREATE TABLE writers (
    id text PRIMARY KEY,          -- 2.0.0a1 counts the commits of a process here; unused
    commits bigint NOT NULL,
    log_ms bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE events (
    block integer NOT NULL,
    seq bigint NOT NULL,
    previous bigint,              -- the event of the same group before this one
    received_at_ms bigint NOT NULL,
    observed_at_ms bigint NOT NULL,
    log_time_ms bigint NOT NULL,
    source bytea NOT NULL,
    crc bigint NOT NULL,
    body bytea NOT NULL,
    age bytea                     -- karrot.event.LagAge as msgpack
) PARTITION BY LIST (block);
CREATE INDEX events_seq ON events (seq);
CREATE TABLE blocks (block integer PRIMARY KEY, first_seq bigint NOT NULL);
CREATE VIEW kept_events AS SELECT * FROM events WHERE seq >= (SELECT first_seq FROM log);
CREATE TABLE groups (
    cluster bytea NOT NULL,
    consumer bytea NOT NULL,
    seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    log_time_ms bigint NOT NULL,
    expired boolean NOT NULL,
    gone boolean NOT NULL,
    crc bigint NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (cluster, consumer)
) WITH (fillfactor = 60);
CREATE INDEX groups_forgettable ON groups (log_time_ms) WHERE expired OR gone;
CREATE INDEX groups_changed ON groups (last_seq);
CREATE TABLE heard (cluster bytea PRIMARY KEY, at_ms bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE counters (
    name text NOT NULL, labels text NOT NULL, value double precision NOT NULL, PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);
CREATE TABLE reporters (name text PRIMARY KEY, log_id text, seq bigint, state bytea NOT NULL) WITH (fillfactor = 50);
CREATE TABLE notes (
    reporter text NOT NULL, name text NOT NULL, value bytea NOT NULL, PRIMARY KEY (reporter, name)
);
CREATE TABLE rejects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at_ms bigint NOT NULL,
    code bytea NOT NULL,
    detail bytea NOT NULL,
    source bytea NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE posts (
    digest bytea PRIMARY KEY,     -- 2.0.0a1 kept idempotency keys here; unused
    seq bigint NOT NULL,
    log_time_ms bigint NOT NULL
);
CREATE INDEX posts_by_time ON posts (log_time_ms);
CREATE TABLE log_ends (
    cluster bytea NOT NULL,
    topic bytea NOT NULL,
    partition bigint NOT NULL,
    touched_ms bigint NOT NULL, -- log time of the newest sample, rounded down to ten minutes
    samples bytea NOT NULL,     -- karrot.eventlog.log_end_history.LogEndHistory.pack
    PRIMARY KEY (cluster, topic, partition)
) WITH (fillfactor = 50, toast_tuple_target = 8160);
ALTER TABLE log_ends ALTER samples SET STORAGE EXTERNAL;
CREATE INDEX log_ends_touched ON log_ends (touched_ms);
"""

# ``heard`` had times of the replicas' wall clocks, and kept the largest time.
_VERSION_2 = "UPDATE heard SET at_ms = log_ms - greatest(0, wall_ms - at_ms) FROM log"

# The summary includes ``age``. That column stays for rows of 2.0.0a1. Readers compute a missing summary.
_VERSION_3 = """
ALTER TABLE events ADD COLUMN summary bytea; -- a checksum, and karrot.eventlog.base.EventSummary as msgpack
CREATE OR REPLACE VIEW kept_events AS SELECT * FROM events WHERE seq >= (SELECT first_seq FROM log);
"""

_VERSION_4 = """
ALTER TABLE log ADD COLUMN run text NOT NULL DEFAULT ''; -- the run of the database server that had the newest commit
CREATE TABLE earlier_ids (
    last_seq bigint PRIMARY KEY, -- the last event with the id
    log_id text NOT NULL,
    given_seq bigint NOT NULL    -- the last known event with the id, even if the log lost it
);
"""

MIGRATIONS: tuple[str, ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4)
"""``MIGRATIONS[n]`` migrates a schema from version n to n + 1. Append new ones; never change an existing one.

During a rolling upgrade, the older Karrot still writes: a new column needs a default, and nothing may be removed.
"""


_log = structlog.get_logger(__name__)


class Opened(NamedTuple):
    """The log that `prepare` found or created: its id, and its time on the clocks of this machine."""

    log_id: str
    anchor: Anchor


def prepare(database: Database, clock: Clock, migrations: Sequence[str] = MIGRATIONS) -> Opened:
    """Check the server, migrate the schema, and read the log's id and time. Raises `LogUnavailableError`."""
    place = f"the schema {database.url.schema} of {database.url}"
    session = {"statement_timeout": "60s", "lock_timeout": _LOCK_TIMEOUT}
    with contextlib.closing(database.open(**session)) as connection:
        try:
            _refuse_unknown_server(connection)
            _refuse_transaction_pooling(database, connection)
            _migrate_patiently(connection, database.url.schema, migrations)
            found = _one(connection, f"SELECT log_id, log_ms, wall_ms, {NOW_MS} FROM log")
        except psycopg.Error as error:
            raise LogUnavailableError(f"{place} cannot be used: {one_line(error)}") from error
    log_id, log_ms, wall_ms, now_ms = found
    log_ms += max(0, now_ms - wall_ms)
    return Opened(log_id, Anchor(clock.boot_id, clock.boot_ms(), clock.wall_ms(), log_ms))


NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The database's clock in epoch milliseconds, as an expression of SQL."""


_END_FROZEN_COMMITS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND wait_event_type = 'Client' AND xact_start < clock_timestamp() - interval '4 s'
AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'log'::regclass AND mode = 'RowShareLock' AND granted)
"""


def end_frozen_commits(connection: Session) -> None:
    """End the sessions that have held the lock on ``log`` for 4 s and wait for their client.

    Their clients froze, or were cut off, between two messages of one commit. No timeout of PostgreSQL ends such a
    session: it executes no statement, and is idle only after the last message. Otherwise, every replica would wait.
    """
    try:
        if ended := connection.execute(_END_FROZEN_COMMITS).rowcount:
            _log.warning(
                "ended sessions that held the lock on the log and did not go on",
                code="sessions_ended",
                sessions=ended,
            )
    except psycopg.Error as error:
        _log.warning(
            "sessions that hold the lock on the log cannot be ended",
            code="sessions_not_ended",
            reason=one_line(error),
        )


def new_block(block: int, first_seq: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The statements that begin a block. They block no reader; ``CREATE TABLE ... PARTITION OF`` would."""
    yield f"CREATE TABLE {block_table(block)} (LIKE events INCLUDING DEFAULTS)", ()
    yield f"ALTER TABLE events ATTACH PARTITION {block_table(block)} FOR VALUES IN ({block})", ()
    yield "INSERT INTO blocks VALUES (%s, %s)", (block, first_seq)


def block_table(block: int) -> str:
    return f"events_{block}"


def _refuse_unknown_server(connection: Session) -> None:
    version = connection.info.server_version
    if version < _OLDEST_SERVER:
        raise LogUnavailableError(f"PostgreSQL {version // 10000} is too old: Karrot needs PostgreSQL 14 or newer")
    if _one(connection, "SHOW server_encoding")[0] != "UTF8":
        raise LogUnavailableError("the database's encoding must be UTF8: create it with ENCODING 'UTF8'")


def _refuse_transaction_pooling(database: Database, connection: Session) -> None:
    """Refuse a pooler that gives each transaction another connection: the lead needs a session of its own.

    The first session reads its own setting while a second session is in a transaction. With a pooler, the second
    session has the first connection to the server, so the first session does not find its setting.
    """
    token = secrets.token_hex(8)
    sentence = (
        "a pooler (such as PgBouncer with pool_mode=transaction) gives each transaction another connection: Karrot "
        "needs sessions for its lock. Connect to PostgreSQL itself, or to a pool with pool_mode=session"
    )
    with contextlib.closing(database.open()) as other:
        connection.execute("SELECT set_config('karrot.session', %s, false)", (token,))
        other.execute("BEGIN")
        taken = _one(other, "SELECT current_setting('karrot.session', true)")[0]
        with connection.limited(2.0):
            try:
                own = _one(connection, "SELECT current_setting('karrot.session', true)")[0]
            except psycopg.OperationalError as error:
                raise LogUnavailableError(f"{sentence} ({one_line(error)})") from error
        if taken == token or own != token:
            raise LogUnavailableError(sentence)


def _migrate_patiently(connection: Session, schema: str, migrations: Sequence[str]) -> None:
    """Create or migrate the schema. Wait for readers in short steps, because no replica can commit during a wait."""
    until_s = time.monotonic() + _START_S
    while True:
        try:
            return _create_or_migrate(connection, schema, migrations)
        except psycopg.errors.LockNotAvailable:
            if time.monotonic() > until_s:
                raise
        time.sleep(_PAUSE_S)


def _create_or_migrate(connection: Session, schema: str, migrations: Sequence[str]) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_MIGRATION_LOCK, schema))
        version = _version(connection, schema)
        if version > len(migrations):
            raise LogUnavailableError(
                f"the event log has schema version {version}, but this Karrot supports versions up to "
                f"{len(migrations)}: start the newer Karrot again, or use another schema (?schema=NAME)"
            )
        for script in migrations[version:]:
            connection.execute(script)
        if version == 0:
            connection.execute(
                "INSERT INTO log SELECT 1, %s, now_ms, now_ms, 1, 0, 0, 0, %s, 0, now_ms, NULL, NULL, 0 "
                f"FROM (SELECT {NOW_MS} AS now_ms) AS clock",
                (uuid.uuid4().hex, _FIRST_BLOCK),
            )
            for sql, parameters in new_block(_FIRST_BLOCK, 1):
                connection.execute(sql, parameters)
        if version < len(migrations):
            connection.execute("UPDATE schema_version SET version = %s", (len(migrations),))


def _version(connection: Session, schema: str) -> int:
    """The schema's version; 0 for a new schema, which is created. Raises `LogUnavailableError` for a foreign schema."""
    exists = _one(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", schema)[0]
    if not exists:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    tables = (
        "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(%s)) AND relkind IN ('r', 'p')"
    )
    if _one(connection, tables, schema)[0] == 0:
        connection.execute("CREATE TABLE schema_version (application text NOT NULL, version integer NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (%s, 0)", (_APPLICATION,))
        return 0
    mark = "SELECT to_regclass(quote_ident(%s) || '.schema_version') IS NOT NULL"
    if _one(connection, mark, schema)[0]:
        found = connection.execute("SELECT application, version FROM schema_version").fetchone()
        if found is not None and found[0] == _APPLICATION:
            return int(found[1])
    raise LogUnavailableError(
        f"the schema {schema} holds tables of another program: choose another one with ?schema=NAME in KARROT_EVENT_LOG"
    )


def _one(connection: Session, sql: str, *parameters: object) -> tuple[Any, ...]:
    row = connection.execute(sql, parameters or None).fetchone()
    if row is None:
        raise LogUnavailableError("the event log in PostgreSQL has no row in the table log")
    return row
