"""Runs PgBouncer in front of a PostgreSQL server of a test."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from support.eventlog.postgres_server import DATABASE, PASSWORD, USER, PostgresServer, postgres_home
from support.service.free_ports import free_port
from support.waiting import wait_for

_CONFIGURATION = """
[databases]
{database} = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {home}/users
pool_mode = {pool_mode}
default_pool_size = 20
max_client_conn = 100
"""


@contextmanager
def running_pgbouncer(server: PostgresServer, pool_mode: str) -> Iterator[int]:
    """A pooler for one server; yields its port. Without PgBouncer the test is skipped."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("needs PgBouncer (Debian: apt-get install pgbouncer)")
    port = free_port()
    with postgres_home() as home:
        (home / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
        text = _CONFIGURATION.format(database=DATABASE, server=server.port, port=port, home=home, pool_mode=pool_mode)
        (home / "pgbouncer.ini").write_text(text)
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, home / "pgbouncer.ini"], stdout=log, stderr=log, **server.as_user(), start_new_session=True
            )

        def is_up() -> bool:
            assert process.poll() is None, (home / "log").read_text()
            with suppress(psycopg.OperationalError):
                server.connect(DATABASE, port=port).close()
                return True
            return False

        try:
            wait_for(is_up, 30, every_s=0.05)
            yield port
        finally:
            process.kill()
            process.wait()
