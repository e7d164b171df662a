"""Holds the lead among all processes that share a database, with an advisory lock on a connection of its own.

PostgreSQL ends the session of a leader that is silent for 10 seconds, so a frozen or unreachable leader loses the lock.
A leader that has heard no answer for 8 seconds does not lead any more, by its own boot clock, which runs while the
process is frozen. So two processes never believe at the same time that they lead.
"""

import contextlib
import logging
import secrets
import threading
from collections.abc import Callable

import psycopg

from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres.connections import Connection, Database, one_line
from karrot.eventlog.postgres.schema import end_frozen_commits

_LOCK = 0x4B4C
"""The first key of the advisory lock. The second is a hash of the schema's name: each schema has its own leader."""

_SILENCE = "10s"
_VALID_MS = 8_000
_PING_S = 2.0
_ANSWER_S = 3.0
_TRY = "SELECT pg_try_advisory_lock(%s, hashtext(%s))"
_TAKE = "UPDATE log SET leader = %s, leader_name = %s, epoch = epoch + 1"
WHO_LEADS = (
    "SELECT leader_name FROM log WHERE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    f"AND classid = {_LOCK} AND objid::bigint = hashtext(?)::bigint & 4294967295 AND objsubid = 2)"
)
"""The name of the leader. The name of a process that died stays in ``log``, so the lock decides."""

_GIVE_UP = "UPDATE log SET leader = NULL, leader_name = NULL WHERE leader = %s"

_log = logging.getLogger(__name__)


class LeaderLock:
    """The lead of one process. ``name`` is how people know this process. ``boot_ms`` is the boot clock.

    ``fence`` is a random text while this process leads, and the log has the same text. Every write of the leader
    carries it, and a commit refuses the write if the log has another one. It is empty after the lead was lost or given
    up, and ``None`` if this process never led.
    """

    def __init__(self, database: Database, name: str, boot_ms: Callable[[], int]) -> None:
        self._database = database
        self._name = name
        self._boot_ms = boot_ms
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._heard_ms = 0
        self._stop = threading.Event()
        self.fence: str | None = None

    def lead(self) -> bool:
        with self._lock:
            if self.fence:
                return self._still_leads()
            try:
                return self._take()
            except (psycopg.Error, LogUnavailableError, RuntimeError) as error:  # RuntimeError: no thread can start
                _log.debug("the lead cannot be asked for: %s", one_line(error))
                if isinstance(error, psycopg.errors.QueryCanceled) and self._connection is not None:
                    end_frozen_commits(self._connection)
                self._disconnect()
                return False

    def leads(self) -> bool:
        """Whether this process leads. It does not ask PostgreSQL."""
        with self._lock:
            return bool(self.fence) and self._still_leads()

    def resign(self) -> None:
        with self._lock:
            if self.fence and self._connection is not None:
                with contextlib.suppress(psycopg.Error), self._database.limited(self._connection, _ANSWER_S):
                    self._connection.execute(_GIVE_UP, (self.fence,))
                    # The server notices a closed connection late, and the next leader should not wait for that.
                    self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._lose()

    def lose(self, fence: str | None) -> None:
        """Stop to lead, because the log has another fence than ``fence``, which a write of this process carried."""
        with self._lock:
            if fence and self.fence == fence:
                _log.warning(
                    "this process lost the lead", extra={"code": "lead_lost", "reason": "another replica leads"}
                )
                self._lose()

    def _still_leads(self) -> bool:
        if self._boot_ms() - self._heard_ms >= _VALID_MS:
            _log.warning(
                "this process lost the lead",
                extra={"code": "lead_lost", "reason": f"PostgreSQL has not answered for {_VALID_MS // 1000} s"},
            )
            self._lose()
        return bool(self.fence)

    def _take(self) -> bool:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect(idle_session_timeout=_SILENCE)
        connection, asked_ms = self._connection, self._boot_ms()
        with self._database.limited(connection, _ANSWER_S):
            row = connection.execute(_TRY, (_LOCK, self._database.url.schema)).fetchone()
            if row is None or not row[0]:
                return False
            fence = secrets.token_hex(8)
            connection.execute(_TAKE, (fence, self._name))
        stop = threading.Event()
        threading.Thread(target=self._ping, args=(connection, stop), name="karrot-leader-ping", daemon=True).start()
        self.fence, self._heard_ms, self._stop = fence, asked_ms, stop  # a lead without a ping would be lost soon
        return True

    def _ping(self, connection: Connection, stop: threading.Event) -> None:
        """Keep the session alive until the lead ends. If the session is lost, the lead is lost."""
        while not stop.wait(_PING_S):
            asked_ms = self._boot_ms()
            try:
                with self._database.limited(connection, _ANSWER_S):
                    connection.execute("SELECT 1")
            except psycopg.Error as error:
                with self._lock:
                    if not stop.is_set():
                        _log.warning(
                            "this process lost the lead", extra={"code": "lead_lost", "reason": one_line(error)}
                        )
                        self._lose()
                return
            with self._lock:
                self._heard_ms = max(self._heard_ms, asked_ms)

    def _lose(self) -> None:
        if self.fence:
            self.fence = ""
        self._stop.set()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
