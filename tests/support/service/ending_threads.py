"""Runs ``karrot`` so that one thread ends at once, once. It is a program for `Service`.

The environment variable ``ENDING_THREADS`` names a directory. The program adds the name of each thread that it starts
to the file ``started``. If the file ``armed`` has this name, the thread fails, and ``armed`` is renamed to ``failed``.
"""

import os
import re
import threading
from contextlib import suppress
from pathlib import Path

from karrot.cli import main


def let_one_fail(directory: Path) -> None:
    start, seen = threading.Thread.start, set[str]()

    def start_or_fail(thread: threading.Thread) -> None:
        name, run = re.sub(r"\d+", "N", thread.name), thread.run

        def run_or_fail() -> None:
            with suppress(FileNotFoundError):  # nothing is armed, or another process was faster
                if (directory / "armed").read_text() == name:
                    (directory / "armed").rename(directory / "failed")
                    raise RuntimeError("the thread fails")
            run()

        if name not in seen:
            seen.add(name)
            with (directory / "started").open("a") as started:
                started.write(f"{name}\n")
        thread.run = run_or_fail  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_or_fail  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    let_one_fail(Path(os.environ["ENDING_THREADS"]))
    main()
