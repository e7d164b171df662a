"""Holds the lead among all processes that share a database, with an advisory lock in a separate session.

The leader queries the session before it sends anything: while the session answers, no other process has the lock. The
queries also keep the session alive, because PostgreSQL ends a session after 10 idle seconds. So a frozen or unreachable
leader loses the lock. If a leader freezes between the query and the sending, one batch is sent twice.
"""

import contextlib
import secrets
import threading

import psycopg
import structlog

from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres.connections import Session, Sessions, one_line
from karrot.eventlog.postgres.schema import end_frozen_commits

_LOCK = 0x4B4C
"""The first key of the advisory lock. The second is a hash of the schema's name, so each schema has a leader."""

_SILENCE = "10s"
_ANSWER_S = 3.0
_TRY = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
_TAKE = "UPDATE log SET leader = %s, leader_name = %s, epoch = epoch + 1"
WHO_LEADS = (
    "SELECT leader_name FROM log WHERE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    f"AND classid = {_LOCK} AND objid::bigint = hashtext(current_schema())::bigint & 4294967295 AND objsubid = 2)"
)
"""Selects the leader's name. A dead process's name stays in ``log``, so the lock decides."""

_GIVE_UP = "UPDATE log SET leader = NULL, leader_name = NULL WHERE leader = %s"

_log = structlog.get_logger(__name__)


class LeaderLock:
    """Takes and gives up the lead for one process. People see the process as ``name``.

    ``token`` is a random string while this process leads, and the log has the same string. A commit refuses a leader's
    write if the log has another token, because the process may have been frozen between the query and the write.
    ``token`` is ``""`` after the lead was lost or given up, and ``None`` if this process never led.
    """

    def __init__(self, sessions: Sessions, name: str) -> None:
        self._sessions = sessions
        self._name = name
        self._lock = threading.Lock()
        self._session: Session | None = None
        self.token: str | None = None

    def lead(self) -> bool:
        with self._lock:
            if self.token:
                return self._answers()
            try:
                return self._take()
            except (psycopg.Error, LogUnavailableError) as error:
                _log.debug("the lead cannot be asked for", reason=one_line(error))
                if isinstance(error, psycopg.errors.QueryCanceled) and self._session is not None:
                    end_frozen_commits(self._session)
                self._lose()
                return False

    def leads(self) -> bool:
        """Ask PostgreSQL whether this process leads."""
        with self._lock:
            return bool(self.token) and self._answers()

    def resign(self) -> None:
        with self._lock:
            if self.token and self._session is not None:
                with contextlib.suppress(psycopg.Error), self._session.limited(_ANSWER_S):
                    self._session.execute(_GIVE_UP, (self.token,))
                    # The server notices a closed connection late, and the next leader should not wait for that.
                    self._session.execute("SELECT pg_advisory_unlock_all()")
            self._lose()

    def _take(self) -> bool:
        if self._session is None:
            self._session = self._sessions.take()
            self._session.set(idle_session_timeout=_SILENCE)
        with self._session.limited(_ANSWER_S):
            row = self._session.execute(_TRY, (_LOCK,)).fetchone()
            if row is None or not row[0]:
                return False
            token = secrets.token_hex(8)
            self._session.execute(_TAKE, (token, self._name))
        self.token = token
        return True

    def _answers(self) -> bool:
        try:
            if self._session is not None:
                with self._session.limited(_ANSWER_S):
                    self._session.execute("SELECT 1")
        except psycopg.Error as error:
            _log.warning("this process lost the lead", code="lead_lost", reason=one_line(error))
            self._lose()
        return bool(self.token)

    def _lose(self) -> None:
        if self.token:
            self.token = ""
        if self._session is not None:
            self._session.close()
            self._sessions.give_back(self._session)
            self._session = None
