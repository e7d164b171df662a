"""Runs a PostgreSQL server whose certificate is signed by an authority that only the test knows."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.eventlog.postgres_server import DATABASE, PostgresServer, postgres_bin, postgres_home

_OPENSSL = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


@contextmanager
def running_postgres_with_tls() -> Iterator[tuple[PostgresServer, str]]:
    """A new server with the database `DATABASE`, and the certificate of its authority. Its name is ``localhost``."""
    with postgres_home() as home:
        server = PostgresServer(home, postgres_bin())
        server.create()
        authority = _certificates(home, server.data)
        server.settings = {
            "ssl": "on",
            "ssl_cert_file": str(home / "server.crt"),
            "ssl_key_file": str(home / "server.key"),
        }
        server.start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")
            yield server, authority
        finally:
            server.stop()


def make_authority(folder: Path, name: str = "authority") -> str:
    """Make an authority in a folder with a name, and return its certificate."""
    command = f"{_OPENSSL} -x509 -days 2 -subj /CN={name} -keyout ca.key -out ca.crt"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return (folder / "ca.crt").read_text()


def _certificates(home: Path, data: Path) -> str:
    """Write the server's key and certificate, for the owner of its data, and return the authority's certificate."""
    authority = make_authority(home)
    for command in (
        f"{_OPENSSL} -subj /CN=localhost -keyout server.key -out server.csr",
        "openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt",
    ):
        subprocess.run(command.split(), cwd=home, check=True, capture_output=True)
    owner = data.stat()
    for name in ("server.key", "server.crt"):
        os.chown(home / name, owner.st_uid, owner.st_gid)
        (home / name).chmod(0o600)
    return authority
