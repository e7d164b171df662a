"""SIGTERM ends ``karrot serve`` at once as process 1 of a container, where a signal without a handler is ignored."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from karrot.clock import SystemClock
from support.eventlog.sqlite_log import open_sqlite
from support.waiting import wait_for

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")
ENDED = 128 + signal.SIGTERM

KARROT = "from karrot.__main__ import main; main()"
SIGNAL_AT_THE_FIRST_IMPORT = f"""
import os, signal, sys

class Signals:
    def find_spec(self, name, path=None, target=None):
        if name == "karrot.cli":
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Signals())
{KARROT}
"""

SLOW_CHECK = """
PRAGMA ignore_check_constraints = 1;
CREATE TABLE slow (text TEXT CHECK (instr(text, substr(text, 1, length(text) / 2) || 'b') = 0));
INSERT INTO slow VALUES (replace(hex(zeroblob(4000000)), '0', 'a'));
"""
"""A check of this table takes many minutes: it compares half of the text at each of its letters."""


@contextmanager
def process_one(program: str, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``karrot serve`` in a namespace of its own. The process in this namespace is the child of the result."""
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, to make a namespace for processes")
    own = {name: value for name, value in os.environ.items() if not name.startswith("KARROT_")}
    command = [*UNSHARE, sys.executable, "-c", program, "serve", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, env=own | {"KARROT_DATA_DIR": str(data)}) as process:
        try:
            yield process
        finally:
            process.kill()


def test_sigterm_ends_a_service_that_has_only_begun_to_start(tmp_path: Path) -> None:
    with process_one(SIGNAL_AT_THE_FIRST_IMPORT, tmp_path / "data") as process:
        assert process.wait(60) == ENDED


def test_sigterm_ends_a_service_that_checks_its_log(tmp_path: Path) -> None:
    open_sqlite(tmp_path, SystemClock()).close()
    with closing(sqlite3.connect(tmp_path / "events.db")) as log:
        log.executescript(SLOW_CHECK)
    with process_one(KARROT, tmp_path) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for(lambda: bool(children.read_text()))
        child = Path("/proc", children.read_text().strip())
        database = str(tmp_path / "events.db")
        a_start = 3 * os.sysconf("SC_CLK_TCK")
        wait_for(lambda: opens(child, database) and cpu_ticks(child) > a_start)
        os.kill(int(child.name), signal.SIGTERM)
        assert process.wait(20) == ENDED


def opens(process: Path, file: str) -> bool:
    found = []
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(str(descriptor.readlink()))
    return file in found


def cpu_ticks(process: Path) -> int:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
