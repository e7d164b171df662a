"""Runs a standby that follows a PostgreSQL server by streaming replication."""

from collections.abc import Iterator
from contextlib import contextmanager

from support.eventlog.postgres_server import OpenHome, PostgresServer, postgres_home
from support.service.free_ports import free_port
from support.waiting import wait_for

_FOLLOWS = {"wal_retrieve_retry_interval": "200ms"}


@contextmanager
def streaming_standby(
    primary: PostgresServer,
    *,
    synchronous: bool,
    port: int | None = None,
    own_port: int | None = None,
    open_home: OpenHome = postgres_home,
) -> Iterator[PostgresServer]:
    """A standby that follows the primary, or a proxy on ``port``. With ``synchronous``, each commit waits for it.

    ``own_port`` is the port of the standby, for example that of a former primary.
    """
    with open_home() as home:
        standby = PostgresServer(home, primary.bin, own_port or free_port(), {**primary.settings, **_FOLLOWS})
        standby.follow(primary, port=port)
        standby.start()
        with primary.connect() as connection:
            wait_for(lambda: connection.execute("SELECT state FROM pg_stat_replication").fetchone() == ("streaming",))
            if synchronous:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
                connection.execute("SELECT pg_reload_conf()")
                sync = "SELECT sync_state FROM pg_stat_replication"
                wait_for(lambda: connection.execute(sync).fetchone() == ("sync",))
        try:
            yield standby
        finally:
            standby.stop()
