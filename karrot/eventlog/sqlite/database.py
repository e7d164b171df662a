"""Opens the SQLite file with settings for durable commits, and creates, migrates and checks its schema."""

import uuid
from collections.abc import Sequence
from pathlib import Path

import apsw

from karrot.clock import Anchor
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.rows import EVENT_FIELDS, GROUP_FIELDS

_APPLICATION_ID = 0x4B415252
"""``KARR`` in the file's header: it distinguishes Karrot's file from that of another program."""

# Text and bodies are read as bytes: apsw cannot return a row at all if a text in it is damaged.
_TEXTS = ("source", "age", "body", "cluster", "consumer", "state")
EVENT_COLUMNS, GROUP_COLUMNS = (
    ", ".join(f"CAST({name} AS BLOB)" if name in _TEXTS else name for name in names)
    for names in (EVENT_FIELDS, GROUP_FIELDS)
)

WAL_LIMIT = 64 << 20
"""The size in bytes to which a checkpoint truncates the emptied write-ahead log."""

_BUSY_MS = 2000
_VERSION_1 = """
CREATE TABLE log (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    log_id TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    boot_ms INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    log_ms INTEGER NOT NULL,
    events INTEGER NOT NULL,
    groups INTEGER NOT NULL
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, -- without AUTOINCREMENT a deleted id is given out again, below a cursor
    previous INTEGER,                      -- the event of the same group before this one
    received_at_ms INTEGER NOT NULL,
    observed_at_ms INTEGER NOT NULL,
    log_time_ms INTEGER NOT NULL,
    source TEXT NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE groups (
    cluster TEXT NOT NULL,
    consumer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    log_time_ms INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (cluster, consumer)
) WITHOUT ROWID;
CREATE TABLE heard (cluster TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (
    name TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (name, labels)
) WITHOUT ROWID;
CREATE TABLE reporters (name TEXT PRIMARY KEY, log_id TEXT, seq INTEGER, state BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rejects (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    received_at_ms INTEGER NOT NULL,
    code TEXT NOT NULL,
    detail TEXT NOT NULL,
    source TEXT NOT NULL,
    body BLOB NOT NULL
);
"""

_VERSION_2 = """
CREATE TABLE notes (
    reporter TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (reporter, name)
) WITHOUT ROWID;
"""

# Beyond KARROT_MAX_CONSUMERS each commit searches for a group to forget. With 50,000 groups a scan took 20 ms.
_VERSION_3 = "CREATE INDEX forgettable ON groups (log_time_ms) WHERE expired OR gone;"

# Readers query every two seconds which groups changed. Without this index SQLite scans every group: 2.5 ms for 10,000.
_VERSION_4 = "CREATE INDEX told ON groups (last_seq);"

# The rate of samples of a partition, not the number of groups, decides how much of ``log_ends`` changes in a commit.
_VERSION_5 = """
CREATE TABLE log_ends (
    cluster TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL, -- log time of the newest sample, rounded down to ten minutes
    samples BLOB NOT NULL,       -- karrot.eventlog.log_end_history.LogEndHistory.pack
    PRIMARY KEY (cluster, topic, partition)
);
CREATE INDEX log_ends_touched ON log_ends (touched_ms);
ALTER TABLE log ADD COLUMN log_end_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE events ADD COLUMN age BLOB; -- karrot.event.LagAge as msgpack; NULL if unknown, or stored before version 5
"""

_VERSION_6 = """
CREATE TABLE posts (
    digest BLOB PRIMARY KEY, -- 2.0.0a1 kept idempotency keys here; unused
    seq INTEGER NOT NULL,
    log_time_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX posts_by_time ON posts (log_time_ms);
"""

# ``heard`` had the time of the wall clock, and kept the largest one.
_VERSION_7 = "UPDATE heard SET at_ms = (SELECT log_ms - max(0, wall_ms - at_ms) FROM log);"

MIGRATIONS: tuple[str, ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6, _VERSION_7)
"""``MIGRATIONS[n]`` migrates a file from version n to n + 1. Append new ones; never change an existing one."""


class DamagedDatabaseError(Exception):
    """The file is not a log of Karrot, or it is damaged. The message says what is wrong."""


def connect(path: Path, *, max_bytes: int, create: bool = False) -> apsw.Connection:
    """Open the file for durable commits, within ``max_bytes``: on a full volume, SQLite cannot delete rows."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(_BUSY_MS)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA journal_size_limit={WAL_LIMIT}")
    page_size = connection.pragma("page_size")
    connection.execute(f"PRAGMA max_page_count={max(64, max_bytes // page_size)}")
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Open the file for reading only."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_MS)
    connection.execute("PRAGMA query_only=1")
    return connection


def create_or_migrate(connection: apsw.Connection, anchor: Anchor, migrations: Sequence[str] = MIGRATIONS) -> int:
    """Migrate the schema. Returns the version before it. Raises `LogUnavailableError` for a newer Karrot's file."""
    before: int = connection.pragma("user_version")
    if before > len(migrations):
        raise LogUnavailableError(
            f"the event log has schema version {before}, but this Karrot supports versions up to {len(migrations)}: "
            "start the newer Karrot again, or move the data directory away"
        )
    with connection:
        for script in migrations[before:]:
            connection.execute(script)
        if before == 0:
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute("INSERT INTO log VALUES (1, ?, ?, ?, ?, ?, 0, 0, 0)", (uuid.uuid4().hex, *anchor))
        connection.execute(f"PRAGMA user_version={len(migrations)}")
    return before


def check(connection: apsw.Connection) -> None:
    """Raise `DamagedDatabaseError` unless the file is an undamaged log of Karrot, or new and empty."""
    application_id = connection.pragma("application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application_id == 0 and tables == 0:
        return
    if application_id != _APPLICATION_ID:
        raise DamagedDatabaseError("it is a database of another program")
    verdict = connection.execute("PRAGMA quick_check(1)").get
    if verdict != "ok":
        raise DamagedDatabaseError(str(verdict))
