"""A sender that a test can kill: it writes each acknowledged name to disk before it sends the next one.

Run it as ``python -m e2e.sender PORT FILE``. Like Burrow it never repeats a request.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import IO

from support.burrow.recorded_bodies import recorded_body

_PAUSE_S = 0.01
_WARN = recorded_body("karrot_v1.9.5_warn.json")


@contextmanager
def sending(port: int, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a sender process, and kill it at the end."""
    command = [sys.executable, "-m", "e2e.sender", str(port), str(file)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    file.touch()
    process = subprocess.Popen(command, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def acknowledged(file: Path) -> set[str]:
    """Return the acknowledged names; the last line of the file may be incomplete."""
    return {line.removesuffix("\n") for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")}


def _send(name: str, file: IO[str], connection: HTTPConnection) -> None:
    connection.request("POST", "/burrow", _WARN.replace(b'"orders-svc"', b'"%b"' % name.encode()))
    response = connection.getresponse()
    response.read()
    if response.status == 202:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())


def _main(port: int, path: Path) -> None:
    names = (f"{path.name}-{number}" for number in count())
    with path.open("a") as file:
        while True:
            with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                try:
                    for name in names:
                        _send(name, file, connection)
                        time.sleep(_PAUSE_S)
                except (OSError, HTTPException):
                    time.sleep(_PAUSE_S)


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]))
