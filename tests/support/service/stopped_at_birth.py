"""Runs ``karrot`` so that each worker gets SIGTERM before it has its own signal handlers, if the file exists.

It is a program for `Service`. The environment variable ``STOPPED_AT_BIRTH`` names the file. A worker that gets the
signal removes the file first.
"""

import os
import signal
from pathlib import Path

from gunicorn.workers.base import Worker

from karrot.cli import main

_init_signals = Worker.init_signals


def init_signals(worker: Worker) -> None:
    file = Path(os.environ["STOPPED_AT_BIRTH"])
    if file.exists():
        file.unlink()
        os.kill(os.getpid(), signal.SIGTERM)
    _init_signals(worker)


if __name__ == "__main__":
    Worker.init_signals = init_signals
    main()
