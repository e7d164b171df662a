"""Reads the state of the PostgreSQL server and of its standbys, as far as Karrot's role may see it."""

import psycopg

from karrot.eventlog.database_status import DatabaseStatus, Standby
from karrot.eventlog.sql_log import ReadConnection

_SERVER = """
SELECT coalesce(host(inet_server_addr()), 'a socket'), current_setting('server_version'),
    (SELECT coalesce(bool_or(ssl), false) FROM pg_stat_ssl WHERE pid = pg_backend_pid()),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database),
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(nullif(current_setting('reserved_connections', true), '')::int, 0)
"""

# flush_lag is NULL some time after the standby has everything. A role without pg_monitor gets rows of NULL.
_STANDBYS = """
SELECT application_name, sync_state, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn), 0)::bigint,
    coalesce(extract(epoch FROM flush_lag), 0)::float8
FROM pg_stat_replication WHERE state IS NULL OR state IN ('catchup', 'streaming') ORDER BY application_name
"""


def server_status(connection: ReadConnection) -> DatabaseStatus:
    """The state of the server that a connection leads to."""
    return DatabaseStatus(*(*connection.execute(_SERVER).fetchone(), _standbys(connection)))


def _standbys(connection: ReadConnection) -> tuple[Standby, ...] | None:
    try:
        found = connection.execute(_STANDBYS).fetchall()
    except psycopg.errors.DatabaseError as error:
        if error.sqlstate is None:  # the connection was lost
            raise
        return None  # a managed service can forbid these functions
    return None if any(sync_state is None for _, sync_state, _, _ in found) else tuple(Standby(*row) for row in found)
