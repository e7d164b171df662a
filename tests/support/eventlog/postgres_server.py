"""Runs PostgreSQL servers of this machine on their own data directories and ports, as a user who is not root."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.child_process import runs
from support.service.free_ports import free_port
from support.waiting import wait_for

USER = "karrot"
PASSWORD = "a password"
DATABASE = "karrot"
_START_S = 60.0
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30


def _stop(pid: int) -> None:
    """Stop a process, and wait until it has stopped: before that, it can start another one."""
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ")


def postgres_bin() -> Path:
    """The folder of PostgreSQL's programs; without it the test is skipped. ``POSTGRES_BIN`` names another one."""
    if chosen := os.environ.get("POSTGRES_BIN"):
        return Path(chosen)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found and (program := shutil.which("postgres")):
        found = [Path(program).resolve()]
    return found[-1].parent if found else pytest.skip("needs PostgreSQL (Debian: apt-get install postgresql)")


@dataclass
class PostgresServer:
    """One server. ``home`` holds its data directory; ``settings`` are lines of its configuration.

    ``wrapper`` is a command that starts the server, such as strace.
    """

    home: Path
    bin: Path
    port: int = field(default_factory=free_port)
    settings: Mapping[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def url(self, schema: str = "karrot", *, port: int | None = None, **parameters: str) -> str:
        """The URL of the database. ``port`` is that of a proxy or a pooler in front of the server."""
        more = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{DATABASE}?schema={schema}{more}"

    def create(self) -> None:
        """Make the data directory, with one role with a password. ``fsync`` stays on: Karrot refuses it otherwise."""
        password = self.home / "password"
        password.write_text(PASSWORD)
        self._give_away(password)
        self.run("initdb", "-D", self.data, "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}",
                 "-E", "UTF8", "--no-locale", "--no-sync")  # fmt: skip

    def follow(self, primary: "PostgresServer", slot: str = "", *, port: int | None = None) -> None:
        """Make the data directory as a standby of another server. ``port`` is that of a proxy in front of it."""
        if not (self.bin / "pg_basebackup").exists():
            pytest.skip(f"needs pg_basebackup, which is not in {self.bin}")
        place = f"host=127.0.0.1 port={port or primary.port} user={USER} password='{PASSWORD}'"
        slots = ["-C", "-S", slot] if slot else []
        self.run("pg_basebackup", "-D", self.data, "-d", f"{place} application_name=standby", "-R", "-X", "stream",
                 "-c", "fast", "--no-sync", *slots)  # fmt: skip

    def start(self, *, wait: bool = True) -> None:
        lines = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": f"'{self.home}'",
            "max_connections": "60",
            "shared_buffers": "32MB",
            "max_prepared_transactions": "0",
            "hot_standby": "on",
            "wal_keep_size": "64MB",
            **self.settings,
        }
        options = [text for name, value in lines.items() for text in ("-c", f"{name}={value.strip(chr(39))}")]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, self.bin / "postgres", "-D", self.data, *options],
                stdout=log, stderr=log, cwd=self.home, **self.as_user(), start_new_session=True,
            )  # fmt: skip
        if wait:
            wait_for(self.is_up, _START_S, every_s=0.05)

    def is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log[-2000:]
        with suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def connect(self, dbname: str = "postgres", *, port: int | None = None) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1", port=port or self.port, user=USER, password=PASSWORD, dbname=dbname, autocommit=True,
            connect_timeout=5,
        )  # fmt: skip

    def kill(self) -> None:
        """Kill every process of the server at once, as a crash of its machine does."""
        assert self.process is not None
        killed = self.processes()
        self._signal(signal.SIGKILL)
        self.process.wait()
        # A new server refuses to start while a process of the old one holds its shared memory.
        wait_for(lambda: not any(runs(pid) for pid in killed))

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server, even if frozen. ``fast`` ends all sessions, ``immediate`` also skips the last checkpoint."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.run("pg_ctl", "stop", "-D", self.data, "-m", mode)
            self.process.wait(30)

    def processes(self) -> list[int]:
        """The server's processes. Each one has a session of its own, so only the first one knows the others."""
        assert self.process is not None
        pid = self.process.pid
        with suppress(FileNotFoundError):
            return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        return []

    def freeze(self) -> None:
        """Stop every process of the server without ending it: connections stay, and are not answered."""
        for pid in self.processes()[:1]:
            _stop(pid)
        for pid in self.processes():  # the first one has stopped, so it starts no other
            _stop(pid)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-D", self.data, "-w")

    def run(self, program: str, *arguments: object) -> str:
        done = subprocess.run(
            [self.bin / program, *map(str, arguments)], capture_output=True, text=True, cwd=self.home,
            check=False, **self.as_user(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def as_user(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root, so root runs it as the user of Debian's package, or as ``nobody``."""
        environment = {**os.environ, "LC_ALL": "C", "PGPASSWORD": PASSWORD}
        if os.geteuid() != 0:
            return {"env": environment}
        account = _account()
        return {"env": environment, "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def _give_away(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, _account().pw_uid, _account().pw_gid)


@contextmanager
def postgres_home() -> Iterator[Path]:
    """A folder that the server's user owns. pytest's own folders are closed to other users.

    It is in memory if there is enough, because ``fsync`` takes most of the time of a small commit on a disk.
    """
    postgres_bin()
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    home = Path(tempfile.mkdtemp(prefix="karrot-postgres-", dir=_MEMORY if has_room else None))
    try:
        if os.geteuid() == 0:
            os.chown(home, _account().pw_uid, _account().pw_gid)
        home.chmod(0o700)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


OpenHome = Callable[[], AbstractContextManager[Path]]
"""Makes the folder of a server, and removes it at the end."""


@contextmanager
def running_postgres(
    *, wrapper: Sequence[str] = (), open_home: OpenHome = postgres_home, **settings: str
) -> Iterator[PostgresServer]:
    """A new server with the database `DATABASE`."""
    with open_home() as home:
        server = PostgresServer(home, postgres_bin(), settings=settings, wrapper=wrapper)
        server.create()
        server.start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")
            yield server
        finally:
            server.stop()


def schema_name(test: str) -> str:
    """A schema of its own for a test."""
    return "t_" + re.sub(r"[^a-z0-9]+", "_", test.lower())[-50:]


def _account() -> pwd.struct_passwd:
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")
