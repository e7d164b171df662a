"""Follows the cursor that a reporter has saved, through restarts and failovers of the database."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import psycopg

from support.eventlog.postgres_server import PostgresServer


class SavedCursor:
    """Reads the cursor again and again, from the primary. ``went_back`` says if it ever decreased."""

    def __init__(self, servers: Sequence[PostgresServer], schema: str, reporter: str = "stdout") -> None:
        self.went_back = False
        self.seq = 0
        self._servers = servers
        self._sql = f"SELECT seq FROM {schema}.reporters WHERE name = '{reporter}'"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._over.wait(0.05):
            for server in self._servers:
                with suppress(psycopg.Error), server.connect("karrot") as connection:
                    self._read(connection)

    def _read(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
            return  # a standby shows what the primary had a moment ago
        while not self._over.wait(0.01):
            for (seq,) in connection.execute(self._sql).fetchall():
                found = int(str(seq or 0))
                self.went_back |= found < self.seq
                self.seq = found
