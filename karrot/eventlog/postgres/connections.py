"""Opens connections to PostgreSQL and pools them, with a limit for the time of each answer.

While PostgreSQL is unreachable, the pool's threads retry until a connection opens. So no request waits for an
unreachable server, and threads do not pile up.
"""

import contextlib
import logging
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
import structlog
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from karrot.eventlog.base import LogUnavailableError

DEFAULT_SCHEMA = "karrot"
Password = Callable[[], str | None]
"""Returns the password for the next connection. With ``None``, libpq uses its password file or ``PGPASSWORD``."""

READ_LIMIT_S = 1.6
"""The time limit of one read. Every request must have its answer within 2 s."""

_STATEMENT_TIMEOUT = "1400ms"
"""Less than `READ_LIMIT_S`, so that a slow server answers with an error before its connection is closed."""

_OPEN_LIMIT_S = 1.2
"""How long a caller waits for a connection."""

_AWAY_S = 3.0
"""After this time without a result, callers wait for a connection again, even if PostgreSQL was unreachable."""

_CONNECT_S = 2
_MOST = 32
"""More connections than a process has threads. A connection opens when a request waits for it."""

_IDLE_S = 60.0
_AGAIN_S = 2.0
"""The pool retries a lost connection for this time. Later, a connection opens when a caller needs it."""

_DEFAULTS: Mapping[str, str] = {
    "application_name": "karrot",
    "target_session_attrs": "read-write",
    "connect_timeout": str(_CONNECT_S),
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
}
"""Default parameters of libpq, which the URL may replace."""

_FLUSH_COMMITS = (
    "SELECT set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)"
)
_log = structlog.get_logger(__name__)
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it warns of each retry

T = TypeVar("T")


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection with an optional time limit for answers. libpq waits forever for a missing answer."""

    _until_s: float | None = None

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Close the connection and raise `psycopg.OperationalError` if an answer takes longer than ``seconds``."""
        self._until_s = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until_s = None

    def wait(self, gen: PQGen[T], *arguments: Any, **options: Any) -> T:
        return super().wait(gen if self._until_s is None else self._bounded(gen, self._until_s), *arguments, **options)

    def set(self, **settings: str) -> None:
        """Change settings of the session. The startup packet has no settings: PgBouncer refuses unknown ones."""
        calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
        self.execute(f"SELECT {calls}", [text for pair in settings.items() for text in pair])

    def is_usable(self) -> bool:
        """Whether the connection is open and idle. Data from an idle server mean that the session ended."""
        if self.closed or self.info.transaction_status != TransactionStatus.IDLE:
            return False
        poll = select.poll()  # select() refuses a process with more than 1,024 open files
        poll.register(self.fileno(), select.POLLIN)
        return not poll.poll(0)

    def _bounded(self, gen: PQGen[T], until_s: float) -> PQGen[T]:
        """Wrap ``gen``, so that psycopg continues it when there is data, but also ten times a second."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > until_s:
                    _log.warning(
                        "PostgreSQL does not answer in time; the connection is shut down",
                        code="postgresql_slow",
                    )
                    self.close()
                    raise psycopg.OperationalError("PostgreSQL does not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            return cast("T", end.value)


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


class Database:
    """Opens connections for one process."""

    def __init__(self, url: DatabaseUrl, password: Password) -> None:
        self.url = url
        self._password = password
        self._hosts = _hosts(url.parameters)

    def open(self, **session: str) -> Session:
        """Open a connection with additional session settings. Raises `LogUnavailableError`."""
        try:
            return self._open(session)
        except Exception as error:  # a password command and AWS's libraries can raise any exception
            raise LogUnavailableError(f"cannot connect to PostgreSQL: {one_line(error)}") from error

    def _open(self, settings: Mapping[str, str]) -> Session:
        password = self._password()
        secret = {} if password is None else {"password": password}
        session = Session.connect(autocommit=True, **{**self._parameters(), **secret})
        try:
            defaults = {
                "search_path": self.url.schema,
                "statement_timeout": _STATEMENT_TIMEOUT,
                "idle_in_transaction_session_timeout": "10s",
                "tcp_keepalives_idle": "5",
                "tcp_keepalives_interval": "2",
                "tcp_keepalives_count": "3",
                "client_min_messages": "warning",
                "client_encoding": "UTF8",
                "default_transaction_isolation": "read committed",
            }
            with session.limited(_CONNECT_S):
                session.set(**{**defaults, **settings})
                session.execute(_FLUSH_COMMITS)
                _refuse_unsafe_server(session)
        except BaseException:
            session.close()
            raise
        newest = (session.info.host, str(session.info.port))
        self._hosts = sorted(self._hosts, key=lambda each: (each[0], each[2] or "5432") != newest)
        return session

    def _parameters(self) -> Mapping[str, Any]:
        """The URL's parameters, the last connection's host first, because an unreachable host costs seconds."""
        if len(self._hosts) < 2:  # noqa: PLR2004 - there is no other order
            return self.url.parameters
        columns = zip(*self._hosts, strict=True)
        names = ("host", "hostaddr", "port")
        ordered = {name: ",".join(each) for name, each in zip(names, columns, strict=True) if any(each)}
        return {**self.url.parameters, **ordered}


def _refuse_unsafe_server(session: Session) -> None:
    """Raise `LogUnavailableError` for a server that could lose events. After a failover, another server answers."""
    if next(session.execute("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'"))[0]:
        raise LogUnavailableError(
            "the database is read-only: connect to the primary, with all hosts and target_session_attrs=read-write"
        )
    for setting in ("fsync", "full_page_writes"):
        if next(session.execute(f"SHOW {setting}"))[0] == "off":
            raise LogUnavailableError(f"the server has {setting}=off: a crash of the machine would damage the database")


def _hosts(parameters: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    columns = [str(parameters.get(name) or "").split(",") for name in ("host", "hostaddr", "port")]
    count = max(map(len, columns))
    hosts, addresses, ports = (column if len(column) == count else column[:1] * count for column in columns)
    return list(zip(hosts, addresses, ports, strict=True))


class Sessions:
    """The connection pool of one event log. Create it after the fork, because it has threads.

    ``away`` is why PostgreSQL is unreachable: callers do not wait for a connection. ``losses`` counts lost connections.
    After a loss, another server may answer, without the newest events.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failed: str | None = None
        self._away_until_s = 0.0
        self.away: str | None = None
        self.losses = 0
        self._pool: ConnectionPool[Session] = ConnectionPool(
            connection_class=cast("type[Session]", self),  # the pool calls its `connect`
            min_size=1,
            max_size=_MOST,
            max_idle=_IDLE_S,
            reconnect_timeout=_AGAIN_S,
            num_workers=2,
            name="karrot-postgres",
            open=True,
        )

    @property
    def failure(self) -> str | None:
        """Why the last read failed; ``None`` if PostgreSQL is reachable: a process that is not ready gets no read."""
        return self._failed if self.away is not None else None

    @contextlib.contextmanager
    def reading(self) -> Iterator["ReadSession"]:
        """Lend a connection for one read. Raises `LogUnavailableError` if the database cannot be read in time."""
        until_s = time.monotonic() + READ_LIMIT_S
        try:
            with self.taken() as session, session.limited(until_s - time.monotonic()):
                yield ReadSession(session)
        except psycopg.Error as error:
            self._failed = f"PostgreSQL cannot read the event log: {one_line(error)}"
            raise LogUnavailableError(self._failed) from error
        except LogUnavailableError as error:
            self._failed = str(error)
            raise
        self._failed = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[Session]:
        """Lend a connection for a ``with`` block."""
        session = self.take()
        try:
            yield session
        except psycopg.Error as error:
            if session.closed:
                self._set_away(f"the connection to PostgreSQL was lost: {one_line(error)}")
                self._pool.drain()  # after a failover, the idle connections are lost too
            raise
        finally:
            self.give_back(session)

    def take(self) -> Session:
        """Take a connection out of the pool. Raises `LogUnavailableError`, at once while PostgreSQL is unreachable."""
        until_s = time.monotonic() + _OPEN_LIMIT_S
        if self.away and time.monotonic() < self._away_until_s and not self._pool.get_stats()["pool_available"]:
            raise LogUnavailableError(self.away)
        while True:
            try:
                session = self._pool.getconn(max(0.01, until_s - time.monotonic()))
            except psycopg.OperationalError as error:
                reason = self.away or f"PostgreSQL did not accept a connection within {_OPEN_LIMIT_S:g} s"
                self._set_away(reason)
                raise LogUnavailableError(reason) from error
            if session.is_usable():
                return session
            session.close()
            self.give_back(session)

    def give_back(self, session: Session) -> None:
        """Give a connection back. The pool replaces a closed connection."""
        self.losses += session.closed
        self._pool.putconn(session)

    def connect(self, _conninfo: str = "", **_parameters: object) -> Session:
        """Open a connection. The pool calls this method in its threads."""
        try:
            session = self._database.open()
        except LogUnavailableError as error:
            self._set_away(str(error))
            raise
        self._set_away(None)
        return session

    def close(self) -> None:
        """Close the idle connections now, and each other connection when it is given back."""
        self._pool.close(_CONNECT_S)

    def _set_away(self, away: str | None) -> None:
        if away is not None and self.away is None:
            _log.warning("PostgreSQL is away", code="postgresql_away", reason=away)
        elif away is None and self.away is not None:
            _log.info("PostgreSQL can be reached again")
        self.away = away
        self._away_until_s = time.monotonic() + _AWAY_S


class ReadSession:
    """Runs statements written with ``?`` for each parameter, and reads the results in binary."""

    def __init__(self, connection: Session) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self._connection.execute(sql.replace("?", "%s"), parameters, binary=True)


def one_line(error: BaseException) -> str:
    """An error's text on one line. PostgreSQL's errors have several lines."""
    return " ".join(str(error).split()) or type(error).__name__
