"""A move of the event log to PostgreSQL, by the steps of docs/moving-the-log.md, while events are posted."""

import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from karrot.clock import SystemClock
from karrot.eventlog.base import EventLog, StoredEvent
from support.eventlog.log_copies import limits, serving
from support.eventlog.postgres_server import PASSWORD, running_postgres
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads
from support.waiting import wait_for

PAGE = Path(__file__).resolve().parents[2] / "docs" / "moving-the-log.md"


@contextmanager
def haproxy(folder: Path, front: Service, server: Service) -> Iterator[Path]:
    """Run HAProxy with the configuration of the page. Returns its admin socket."""
    program = shutil.which("haproxy") or pytest.skip("needs HAProxy (Debian: apt-get install haproxy)")
    [config] = re.findall(r"^   ```haproxy\n(.*?)^   ```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    admin = folder / "admin.sock"
    for on_the_page, here in (
        ("/run/haproxy/admin.sock", str(admin)),
        ("bind :5000", f"bind 127.0.0.1:{front.port}"),
        ("192.0.2.10:5000", f"127.0.0.1:{server.port}"),
    ):
        assert config.count(on_the_page) == 1
        config = config.replace(on_the_page, here)
    (folder / "haproxy.cfg").write_text(config)
    with subprocess.Popen([program, "-db", "-f", folder / "haproxy.cfg"]) as running:
        try:
            wait_for(admin.exists)
            yield admin
        finally:
            running.kill()


def tell(admin: Path, command: str) -> str:
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.connect(str(admin))
        connection.sendall(f"{command}\n".encode())
        return connection.recv(4096).decode()


def stored(log: EventLog) -> Counter[str]:
    found: Counter[str] = Counter()
    after = 0
    while page := log.read(after):
        found.update(event.event.consumer for event in page if isinstance(event, StoredEvent))
        after = page[-1].seq
    return found


@pytest.mark.timeout(300)
def test_a_move_to_postgresql_behind_haproxy_loses_no_event(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with running_postgres() as server:
        old = Service(tmp_path / "old")
        new = Service(tmp_path / "new", event_log=server.url("moved"), event_log_password_file=str(password))
        front = Service(tmp_path / "front")  # only its port
        copy = [sys.executable, "-m", "karrot", "log", "copy", "--from", f"sqlite:{old.directory}"]
        copy += ["--to", server.url("moved"), "--to-password-file", str(password)]
        with haproxy(tmp_path, front, old) as admin, old, ExitStack() as at_the_end:
            at_the_end.callback(new.kill)
            with PostingThreads(front) as load:
                load.reach(200)
                subprocess.run([*copy, "--in-advance"], check=True)
                load.reach(50)
                assert old.stop() == 0
                subprocess.run(copy, check=True)
                assert "port changed" in tell(admin, f"set server karrot/karrot addr 127.0.0.1 port {new.port}")
                new.start()
                load.reach(200)
            assert new.stop() == 0
        assert (load.broken, set(load.answers)) == (0, {202})
        place = limits(event_log=server.url("moved"), event_log_password_file=password)
        with serving(place, SystemClock()) as log:
            found = stored(log)
    assert set(load.acknowledged) == set(found)
    assert set(found.values()) == {1}
