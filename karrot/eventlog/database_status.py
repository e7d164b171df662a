"""Describes the database server of an event log, for people who run it."""

import msgspec


class Standby(msgspec.Struct, frozen=True):
    """One standby that streams from the server.

    ``sync_state`` is ``sync``, ``quorum``, ``potential`` or ``async``, as PostgreSQL names it. ``lag_bytes`` is the
    part of the write-ahead log that the standby has not flushed yet. ``lag_seconds`` is how long the newest commits
    that it confirmed took to reach its disk. It is 0 if nothing is outstanding.
    """

    name: str
    sync_state: str
    lag_bytes: int
    lag_seconds: float


class DatabaseStatus(msgspec.Struct, frozen=True):
    """The server, as a session of Karrot sees it.

    ``connections`` counts the connections of all clients. ``max_connections`` is without the connections that are
    reserved for other roles. ``encrypted`` says whether the session uses TLS. ``standbys`` is ``None`` if Karrot's role
    may not see them.
    """

    host: str
    version: str
    encrypted: bool
    synchronous_commit: str
    synchronous_standby_names: str
    connections: int
    max_connections: int
    standbys: tuple[Standby, ...] | None
