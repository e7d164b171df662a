"""Reads the rows of a log in PostgreSQL as they are, and writes the rows of another log to a schema.

Either end holds the lock of the leader, so that no Karrot leads meanwhile. A schema with an unfinished copy has a mark,
and `karrot.eventlog.postgres.schema.prepare` refuses it.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any

import psycopg

from karrot.eventlog.base import READ_LIMIT, LogUnavailableError
from karrot.eventlog.copied_tables import EVENTS, ColumnKind, CopiedTable, LogHead, taken_target
from karrot.eventlog.postgres import schema
from karrot.eventlog.postgres.array_parameters import Integers, Texts
from karrot.eventlog.postgres.connections import Database, one_line
from karrot.eventlog.postgres.leader_lock import try_lock
from karrot.eventlog.postgres.transaction import LOG_END_SIZE, ROW_OVERHEAD, ends_block
from karrot.eventlog.postgres.watchdog import Connection
from karrot.eventlog.rows import Row
from karrot.eventlog.sql_log import READ_BYTES, Limits

_PORTION = 1000
_LOCK_TIMEOUT = "10s"
_LOCK_WAIT_S, _LOCK_AGAIN_S = 5.0, 0.1
_INTEGER, _FLAG, _REAL, _BYTES, _NAME, _TEXT = ColumnKind
_SEQ, _LOG_TIME, _BODY = map(list(EVENTS.columns).index, ("seq", "log_time_ms", "body"))
_READ_AS = {_FLAG: "{}::integer", _TEXT: "convert_to({}, 'UTF8')"}
_WRITE_AS = {_FLAG: "{} <> 0", _TEXT: "convert_from({}, 'UTF8')"}
_HEAD = (
    "SELECT log_id, first_seq, last_seq, groups, log_end_bytes, "
    f"log_ms + greatest(0, {schema.NOW_MS} - wall_ms), log_ms FROM log"
)


class PostgresCopySource:
    """The log in a schema. If ``in_use`` is given, no Karrot leads until `close`.

    ``in_use`` is what to do while a Karrot uses the log. ``None`` reads the log nevertheless.
    """

    def __init__(self, database: Database, *, in_use: str | None) -> None:
        self._place = _place(database)
        self._connection = _connect(database)
        try:
            with _stated(self._place):
                _refuse_unusable(self._connection, self._place)
                if in_use is not None:
                    _lock(self._connection, database, in_use)
        except BaseException:
            self._connection.close()
            raise

    def head(self) -> LogHead:
        """What the log knows about itself now."""
        with _stated(self._place):
            row: Any = self._connection.execute(_HEAD).fetchone()
        return LogHead(*row)

    def events(self, after: int, limit: int = READ_LIMIT) -> Sequence[Row]:
        """The rows of `EVENTS` after a sequence number."""
        sql = (
            f"SELECT {', '.join(EVENTS.columns)} FROM "
            "(SELECT *, sum(length(body)) OVER (ORDER BY seq) - length(body) AS bytes_before FROM "
            "(SELECT * FROM kept_events WHERE seq > %s ORDER BY seq LIMIT %s) AS first) AS sized "
            f"WHERE bytes_before < {READ_BYTES} ORDER BY seq"
        )
        with _stated(self._place):
            return self._connection.execute(sql, (after, limit), binary=True).fetchall()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within the block, every read sees the log at one moment."""
        with _stated(self._place):
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            with contextlib.suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def rows(self, table: CopiedTable) -> Iterator[Sequence[Row]]:
        """All rows of a table, in portions. Call it within a snapshot."""
        columns = ", ".join(_READ_AS.get(kind, "{}").format(name) for name, kind in table.columns.items())
        sql = f"SELECT {columns} FROM {table.name} ORDER BY {table.order}"
        with _stated(self._place), self._connection.cursor(f"copy_{table.name}") as cursor:
            cursor.execute(sql, binary=True)
            while portion := cursor.fetchmany(_PORTION):
                yield portion

    def close(self) -> None:
        """Release the log."""
        self._connection.close()


class PostgresCopyTarget:
    """A schema for a log. ``limits`` decide how large a block of events is."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._place = _place(database)
        self._limits = limits
        self._last_seq = 0
        self._connection = _connect(database)
        try:
            with _stated(self._place):
                _lock(self._connection, database, f"stop it, or {_EMPTY}")
            schema.prepare_for_copy(database)
        except BaseException:
            self._connection.close()
            raise

    def begin(self, head: LogHead) -> int | None:
        """Begin or continue the copy in the schema. Refuses a schema with a log that has had events."""
        with _stated(self._place), self._connection.transaction():
            log_id, last_seq = self._one("SELECT log_id, last_seq FROM log FOR UPDATE")
            if schema.is_unfinished_copy(self._connection):
                if log_id != head.log_id:
                    raise LogUnavailableError(
                        f"{self._place} holds an unfinished copy of another event log ({log_id}): {_EMPTY}, or drop "
                        "the schema"
                    )
            elif log_id == head.log_id and last_seq == head.last_seq:
                return None
            elif log_id == head.log_id or last_seq:
                raise LogUnavailableError(
                    taken_target(self._place, head, log_id=log_id, last_seq=last_seq, empty=_EMPTY)
                )
            else:
                self._connection.execute(f"CREATE TABLE {schema.UNFINISHED_COPY} ()")
                self._connection.execute("UPDATE log SET log_id = %s", (head.log_id,))
            self._last_seq = last_seq
        return self._last_seq

    def newest(self) -> Row | None:
        """The newest event that the target has."""
        sql = f"SELECT {', '.join(EVENTS.columns)} FROM events ORDER BY seq DESC LIMIT 1"
        with _stated(self._place):
            return self._connection.execute(sql, binary=True).fetchone()

    def add(self, events: Sequence[Row]) -> None:
        """Store events durably, in blocks."""
        with _stated(self._place), self._connection.transaction():
            last_seq, block, block_bytes, block_ms = self._one(
                "SELECT last_seq, block, block_bytes, block_ms FROM log FOR UPDATE"
            )
            self._refuse_other_writers(last_seq)
            newest = events[-1]
            block_ms = block_ms if block_bytes else events[0][_LOG_TIME]
            block_bytes += sum(len(row[_BODY]) + ROW_OVERHEAD for row in events)
            self._insert(EVENTS, events, block=block)
            if ends_block(self._limits, block_bytes, newest[_LOG_TIME] - block_ms):
                block, block_bytes, block_ms = block + 1, 0, newest[_LOG_TIME]
                for sql, parameters in schema.new_block(block, newest[_SEQ] + 1):
                    self._connection.execute(sql, parameters)
            self._connection.execute(
                "UPDATE log SET last_seq = %s, block = %s, block_bytes = %s, block_ms = %s",
                (newest[_SEQ], block, block_bytes, block_ms),
            )
        self._last_seq = newest[_SEQ]

    def fill(self, head: LogHead, state: Iterable[tuple[CopiedTable, Iterator[Sequence[Row]]]]) -> None:
        """Replace everything except the events. Hides the events that the source has deleted meanwhile."""
        with _stated(self._place):
            self._connection.execute("BEGIN")
            self._refuse_other_writers(self._one("SELECT last_seq FROM log FOR UPDATE")[0])
            for table, portions in state:
                self._connection.execute(f"DELETE FROM {table.name}")
                for portion in portions:
                    self._insert(table, portion)
            self._connection.execute(
                "UPDATE log SET first_seq = %s, last_seq = %s, groups = (SELECT count(*) FROM groups), "
                f"log_end_bytes = (SELECT coalesce(sum({LOG_END_SIZE}), 0) FROM log_ends), log_ms = %s, "
                f"wall_ms = {schema.NOW_MS}",
                (head.first_seq, head.last_seq, head.log_ms),
            )
            self._connection.execute(f"DROP TABLE {schema.UNFINISHED_COPY}")

    def publish(self) -> None:
        """Commit, and with this let Karrot use the schema."""
        with _stated(self._place):
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Release the schema. What is not committed is lost."""
        self._connection.close()

    def _one(self, sql: str) -> tuple[Any, ...]:
        row = self._connection.execute(sql).fetchone()
        if row is None:
            raise LogUnavailableError(f"{self._place} has no row in the table log")
        return row

    def _refuse_other_writers(self, last_seq: int) -> None:
        """Refuse to write after the lock was lost: a Karrot, or another copy, has written to the schema."""
        if last_seq != self._last_seq:
            raise LogUnavailableError(
                f"{self._place} has taken events during the copy (it has {last_seq} instead of {self._last_seq}): "
                f"stop every Karrot and every other copy that uses it, and {_EMPTY}"
            )

    def _insert(self, table: CopiedTable, rows: Sequence[Row], *, block: int | None = None) -> None:
        first = "" if block is None else f"{block}, "
        columns = ", ".join(table.columns)
        values = ", ".join(_WRITE_AS.get(kind, "{}").format(name) for name, kind in table.columns.items())
        arrays = ", ".join("%s::float8[]" if kind is _REAL else "%s" for kind in table.columns.values())
        self._connection.execute(
            f"INSERT INTO {table.name} ({'block, ' if first else ''}{columns}) SELECT {first}{values} "
            f"FROM unnest({arrays}) AS copied ({columns})",
            list(map(_array, table.columns.values(), zip(*rows, strict=True))),
        )


_EMPTY = "choose an empty schema (?schema=NAME in the URL)"


@contextlib.contextmanager
def _stated(place: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise LogUnavailableError(f"{place} cannot be used: {one_line(error)}") from error


def _place(database: Database) -> str:
    return f"the schema {database.url.schema} of {database.url}"


def _connect(database: Database) -> Connection:
    """A connection for a long copy. A limit on the time of a statement would end the wait for a synchronous standby."""
    return database.connect(
        within_s=schema.START_S,
        statement_timeout="0",
        idle_in_transaction_session_timeout="0",
        lock_timeout=_LOCK_TIMEOUT,
    )


def _lock(connection: Connection, database: Database, advice: str) -> None:
    """Lock the schema as a leader does. It may wait until PostgreSQL has ended the session of a killed process."""
    until = monotonic() + _LOCK_WAIT_S
    while not try_lock(connection, database.url.schema):
        if monotonic() > until:
            raise LogUnavailableError(f"{_place(database)} is in use by a running Karrot, or by another copy: {advice}")
        sleep(_LOCK_AGAIN_S)


def _refuse_unusable(connection: Connection, place: str) -> None:
    supported = len(schema.MIGRATIONS)
    try:
        found = connection.execute("SELECT application, version FROM schema_version").fetchone()
    except psycopg.errors.UndefinedTable:
        found = None
    if found is None or found[0] != schema.APPLICATION:
        raise LogUnavailableError(f"there is no event log in {place}")
    if found[1] != supported:
        raise LogUnavailableError(
            f"{place} has schema version {found[1]}, and this Karrot copies version {supported}: use the Karrot that "
            "wrote it, or start `karrot serve` of this version with it once, which migrates an older one"
        )
    if schema.is_unfinished_copy(connection):
        raise LogUnavailableError(f"{place} holds an unfinished copy of an event log itself: finish that copy first")


def _array(kind: ColumnKind, column: Sequence[Any]) -> Any:
    if kind in (_INTEGER, _FLAG):
        return Integers(column)
    return list(column) if kind is _REAL else Texts(column)
