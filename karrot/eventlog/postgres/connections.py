"""Opens connections to PostgreSQL with time limits, and shuts down a connection that does not answer in time.

While PostgreSQL is away, every call fails at once, and one thread tries again and again until a connection opens. So no
request waits for a server that is away, and no threads pile up.
"""

import contextlib
import logging
import os
import queue
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from itertools import chain, repeat
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format, TransactionStatus
from psycopg.types import TypeInfo

from karrot.eventlog.base import LogUnavailableError

_HEADER: Final = struct.Struct(">iiIii")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_INT8: Final = TypeInfo("int8", 20, 1016)
_BYTEA: Final = TypeInfo("bytea", 17, 1001)


class Integers(list[int | None]):
    """A column of ``bigint``. A value beyond 64 bits raises `OverflowError`."""


class Texts(list[bytes | None]):
    """A column of ``bytea``. Names are in UTF-8, because PostgreSQL's ``text`` cannot hold NUL."""


class _ArrayDumper(Dumper):
    format = Format.BINARY


class IntegersDumper(_ArrayDumper):
    """Packs `Integers`."""

    oid = _INT8.array_oid

    def dump(self, obj: Integers) -> Buffer:
        try:
            if None in obj:
                packed = b"".join(_NULL if each is None else struct.pack(">iq", 8, each) for each in obj)
            else:
                packed = struct.pack(">" + "iq" * len(obj), *chain.from_iterable(zip(repeat(8), obj, strict=False)))
        except struct.error as error:
            raise OverflowError(f"a number does not fit into 64 bits: {error}") from error
        return _header(_INT8, obj) + packed


class TextsDumper(_ArrayDumper):
    """Packs `Texts`."""

    oid = _BYTEA.array_oid

    def dump(self, obj: Texts) -> Buffer:
        pieces = chain.from_iterable((_NULL,) if each is None else (_LENGTH.pack(len(each)), each) for each in obj)
        return _header(_BYTEA, obj) + b"".join(pieces)


def register(connection: psycopg.Connection[Any]) -> None:
    connection.adapters.register_dumper(Integers, IntegersDumper)
    connection.adapters.register_dumper(Texts, TextsDumper)


def _header(kind: TypeInfo, values: Sequence[object]) -> bytes:
    if not values:
        return _HEADER.pack(0, 0, kind.oid, 0, 1)[:12]
    return _HEADER.pack(1, int(None in values), kind.oid, len(values), 1)


Connection = psycopg.Connection[tuple[Any, ...]]

_POLL_S = 0.1


class Watchdog:
    """Shuts down connections whose time is up: libpq has no limit for an answer that never comes."""

    def __init__(self) -> None:
        self._deadlines: dict[Connection, float] = {}
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def limited(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Shut down the connection if the block takes longer than ``seconds``."""
        with self._wake:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="karrot-watchdog", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise psycopg.OperationalError(f"the time of an answer cannot be limited: {error}") from error
                self._thread = thread
            if not self._deadlines:
                self._wake.notify()
            self._deadlines[connection] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._wake:
                self._deadlines.pop(connection, None)

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._deadlines and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                late = [each for each, deadline in self._deadlines.items() if deadline < time.monotonic()]
                for connection in late:
                    del self._deadlines[connection]
                    _shut_down(connection)
            time.sleep(_POLL_S)


def _shut_down(connection: Connection) -> None:
    _log.warning("PostgreSQL does not answer in time; the connection is shut down", extra={"code": "postgresql_slow"})
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


DEFAULT_SCHEMA = "karrot"
Password = Callable[[], str | None]
"""Returns the password for the next connection. ``None`` leaves it to libpq: its password file, or ``PGPASSWORD``."""

READ_LIMIT_S = 1.6
"""How long one read may take. Every request must have its answer within 2 s."""

_STATEMENT_TIMEOUT = "1400ms"
"""Less than `READ_LIMIT_S`: a server that is only slow answers with an error before its connection is shut down."""

_OPEN_LIMIT_S = 1.2
"""How long a caller waits for a new connection."""

_CONNECT_S = 2
_IDLE_READERS = 4
_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_DEFAULTS: Mapping[str, str] = {
    "application_name": "karrot",
    "target_session_attrs": "read-write",
    "connect_timeout": str(_CONNECT_S),
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
}
"""Parameters of libpq that the URL may replace."""

_log = logging.getLogger(__name__)


class DatabaseUrl(NamedTuple):
    """The database of an event log: libpq's parameters without a password, and the PostgreSQL schema of the tables."""

    parameters: Mapping[str, Any]
    schema: str

    @classmethod
    def parse(cls, url: str) -> "DatabaseUrl":
        """Read a ``postgresql://`` URL. Its parameter ``schema`` is Karrot's own. Raises `LogUnavailableError`."""
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        schema = dict(query).get("schema", DEFAULT_SCHEMA)
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise LogUnavailableError(
                f"KARROT_EVENT_LOG has schema={schema}: it must be lower-case letters, digits and _, at most 63"
            )
        rest = urlencode([(name, value) for name, value in query if name != "schema"])
        try:
            given = conninfo_to_dict(urlunsplit(parts._replace(query=rest)))
        except psycopg.ProgrammingError as error:
            raise LogUnavailableError(f"the event log's URL is not a connection URL of PostgreSQL: {error}") from error
        return cls({**_DEFAULTS, **given}, schema)

    def __str__(self) -> str:
        known = self.parameters
        return f"{known.get('user', '')}@{known.get('host', 'localhost')}/{known.get('dbname', '')}".lstrip("@")


class KeptPassword:
    """A password that is used for ``kept_s``, or for ``least_s`` if no connection opens. ``get`` makes the next one."""

    def __init__(self, get: Callable[[], str], *, kept_s: float, least_s: float) -> None:
        self._get = get
        self._kept_s = kept_s
        self._least_s = least_s
        self._lock = threading.Lock()
        self._password = ""
        self._until_s = self._made_s = float("-inf")

    def __call__(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._password = self._get()
                self._made_s = time.monotonic()
                self._until_s = self._made_s + self._kept_s
            return self._password

    def suspect(self) -> None:
        """Make another password soon: no connection opened, so this one may be wrong."""
        self._until_s = self._made_s + self._least_s


class Database:
    """Opens connections for one process. While there is ``trouble``, `connect` fails at once, and it says why."""

    def __init__(self, url: DatabaseUrl, password: Password) -> None:
        self.url = url
        self.trouble: str | None = None
        self._password = password
        self._lock = threading.Lock()
        self._hosts = _hosts(url.parameters)
        self._watchdog = Watchdog()

    def connect(self, *, within_s: float = _OPEN_LIMIT_S, **session: str) -> Connection:
        """Open a connection with more settings. Raises `LogUnavailableError`, at once after an outage."""
        if (trouble := self.trouble) is not None:
            raise LogUnavailableError(trouble)
        opening: Future[Connection] = Future()
        # A thread, because a name server, a command for the password or several hosts can take longer than the caller
        # may wait.
        thread = threading.Thread(target=self._open_for, args=(opening, session), name="karrot-connect", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise LogUnavailableError(f"cannot connect to PostgreSQL: {error}") from error
        wait([opening], within_s)
        if opening.cancel():
            raise self.suspect(f"PostgreSQL did not accept a connection within {within_s:g} s")
        try:
            return opening.result()
        except Exception as error:
            raise self.suspect(f"cannot connect to PostgreSQL: {one_line(error)}") from error

    def suspect(self, reason: str) -> LogUnavailableError:
        """Open no connection for a caller until a thread has opened one. Returns the error for the caller."""
        with self._lock:
            if self.trouble is None:
                _log.warning("PostgreSQL is away", extra={"code": "postgresql_away", "reason": reason})
                try:
                    threading.Thread(target=self._try_again, name="karrot-reconnect", daemon=True).start()
                except RuntimeError:  # no thread would find out that PostgreSQL is back, so the next caller does
                    return LogUnavailableError(reason)
            self.trouble = reason
        return LogUnavailableError(reason)

    def limited(self, connection: Connection, seconds: float) -> contextlib.AbstractContextManager[None]:
        return self._watchdog.limited(connection, seconds)

    def close(self) -> None:
        """End the thread that limits the time of answers: a process forks without threads."""
        self._watchdog.close()

    def _open_for(self, opening: "Future[Connection]", session: Mapping[str, str]) -> None:
        try:
            connection = self._open(session)
        except Exception as error:  # noqa: BLE001 - the caller gets it, unless it does not wait any more
            with contextlib.suppress(InvalidStateError):
                opening.set_exception(error)
            return
        try:
            opening.set_result(connection)
        except InvalidStateError:
            connection.close()

    def _try_again(self) -> None:
        pause_s = _SHORTEST_PAUSE_S
        while True:
            try:
                self._open({}).close()
            except Exception as error:  # noqa: BLE001 - commands and AWS's libraries raise anything
                self.trouble = f"cannot connect to PostgreSQL: {one_line(error)}"
                time.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            else:
                with self._lock:
                    self.trouble = None
                _log.info("PostgreSQL can be reached again")
                return

    def _open(self, session: Mapping[str, str]) -> Connection:
        password = self._password()
        secret = {} if password is None else {"password": password}
        try:
            connection: Connection = psycopg.connect(autocommit=True, **{**self._parameters(), **secret})
        except psycopg.Error:
            if isinstance(self._password, KeptPassword):
                self._password.suspect()
            raise
        try:
            register(connection)
            settings = {
                "search_path": self.url.schema,
                "statement_timeout": _STATEMENT_TIMEOUT,
                "idle_in_transaction_session_timeout": "10s",
                "tcp_keepalives_idle": "5",
                "tcp_keepalives_interval": "2",
                "tcp_keepalives_count": "3",
                "client_min_messages": "warning",
                **session,
            }
            # Not in the startup packet: PgBouncer refuses parameters there that it does not know.
            calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
            with self.limited(connection, _CONNECT_S):
                connection.execute(f"SELECT {calls}", [text for pair in settings.items() for text in pair])
        except BaseException:
            connection.close()
            raise
        newest = (connection.info.host, str(connection.info.port))
        self._hosts = sorted(self._hosts, key=lambda each: (each[0], each[2] or "5432") != newest)
        return connection

    def _parameters(self) -> Mapping[str, Any]:
        """The URL's parameters. The host of the newest connection comes first: an unreachable host costs seconds."""
        if len(self._hosts) < 2:  # noqa: PLR2004 - there is no other order
            return self.url.parameters
        columns = zip(*self._hosts, strict=True)
        names = ("host", "hostaddr", "port")
        ordered = {name: ",".join(each) for name, each in zip(names, columns, strict=True) if any(each)}
        return {**self.url.parameters, **ordered}


def _hosts(parameters: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    columns = [str(parameters.get(name) or "").split(",") for name in ("host", "hostaddr", "port")]
    count = max(map(len, columns))
    hosts, addresses, ports = (column if len(column) == count else column[:1] * count for column in columns)
    return list(zip(hosts, addresses, ports, strict=True))


class Readers:
    """A few idle connections. After one of the ``losses``, another server may answer, without the newest events."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failed: str | None = None
        self._closed = False
        self.losses = 0
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue(_IDLE_READERS)

    @property
    def trouble(self) -> str | None:
        """Why the last read failed; ``None`` if the next one can succeed: a process that is not ready gets none."""
        return self._failed if self._database.trouble is not None else None

    @contextlib.contextmanager
    def reading(self) -> Iterator["ReadSession"]:
        """A connection for one read. Raises `LogUnavailableError` if the database cannot be read in time."""
        try:
            with self._session() as session:
                yield session
        except LogUnavailableError as error:
            self._failed = str(error)
            raise
        self._failed = None

    @contextlib.contextmanager
    def _session(self) -> Iterator["ReadSession"]:
        deadline_s = time.monotonic() + READ_LIMIT_S
        connection = self._take()
        try:
            with self._database.limited(connection, deadline_s - time.monotonic()):
                yield ReadSession(connection)
        except psycopg.Error as error:
            was_lost = connection.closed
            connection.close()
            if was_lost:
                self.losses += 1
                self._drain()  # after a failover, the other idle connections are lost too
                raise self._database.suspect(f"the connection to PostgreSQL was lost: {one_line(error)}") from error
            raise LogUnavailableError(f"PostgreSQL cannot read the event log: {one_line(error)}") from error
        except BaseException:
            connection.close()
            raise
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            connection.close()
        if self._closed:
            self._drain()

    def close(self) -> None:
        """Close the idle connections, and each other one after its read."""
        self._closed = True
        self._drain()

    def _take(self) -> Connection:
        with contextlib.suppress(queue.Empty):
            while True:
                connection = self._idle.get_nowait()
                if is_usable(connection):
                    return connection
                connection.close()
                self.losses += 1
        return self._database.connect()

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()


class ReadSession:
    """Runs statements written with ``?`` for each parameter, and reads the results in binary."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._connection.execute(sql.replace("?", "%s"), parameters, binary=True)


def is_usable(connection: Connection) -> bool:
    """Whether a connection is open and idle. An idle server sends nothing, so data to read mean its end."""
    if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
        return False
    poll = select.poll()  # select() refuses a process with more than 1,024 open files
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def one_line(error: BaseException) -> str:
    """An error's text on one line. PostgreSQL's errors have several lines."""
    return " ".join(str(error).split()) or type(error).__name__
