"""Runs ``karrot`` so that one thread cannot start, or ends at once, or so that one call of ``flock`` fails, once.

It is a program for `Service`. A place is where such a call is made. The environment variable ``FAILING_CALLS`` names a
directory. The program adds each place that it reaches to the file ``places``. If the file ``armed`` names the place,
the call fails, and ``armed`` is renamed to ``failed``.
"""

import errno
import fcntl
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import karrot
from karrot.cli import main

PACKAGE = Path(karrot.__file__).parent


class FailingCalls:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: set[str] = set()

    def reach(self, place: str, error: Exception) -> None:
        if place not in self._seen:
            self._seen.add(place)
            with (self._directory / "places").open("a") as places:
                places.write(f"{place}\n")
        armed = self._directory / "armed"
        try:
            if armed.read_text() == place:
                armed.rename(self._directory / "failed")  # only one process can do this
                raise error
        except FileNotFoundError:
            return

    def install(self) -> None:
        start, flock = threading.Thread.start, fcntl.flock

        def start_or_fail(thread: threading.Thread) -> None:
            name = re.sub(r"\d+", "N", thread.name)
            self.reach(f"start {name} of {next(callers())}", RuntimeError("can't start new thread"))
            run = thread.run

            def run_or_fail() -> None:
                self.reach(f"run {name}", RuntimeError("the thread fails"))
                run()

            thread.run = run_or_fail  # type: ignore[method-assign]
            start(thread)

        def lock_or_fail(file: Any, operation: int) -> None:
            path = Path(f"/proc/self/fd/{file}").readlink()
            kind = "unlock" if operation == fcntl.LOCK_UN else "lock"
            caller = next(name for name in callers() if not name.startswith("locks."))
            self.reach(f"{kind} {path.name} of {caller}", OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)))
            flock(file, operation)

        threading.Thread.start = start_or_fail  # type: ignore[method-assign,assignment]
        fcntl.flock = lock_or_fail


def callers() -> Iterator[str]:
    """Karrot's functions on the stack, innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if PACKAGE in file.parents:
            yield f"{file.stem}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]  # None at the end
    yield "python"


if __name__ == "__main__":
    FailingCalls(Path(os.environ["FAILING_CALLS"])).install()
    main()
