"""Measures the time from ``karrot serve`` to ready with many stored events; the yardstick is importing Flask alone.

PYTHONPATH=tests python benchmarks/start.py [--events 100000] [--rounds 5]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from support.burrow.lag_events import make_event
from support.eventlog.sqlite_log import open_sqlite
from support.service.karrot_service import Service

MAX_BYTES = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        data = Path(directory) / "data"
        data.mkdir()
        fill(data, asked.events)
        ready = statistics.median(to_ready(data) for _ in range(asked.rounds))
        yardstick = statistics.median(importing("flask, gunicorn.app.base") for _ in range(asked.rounds))
    print(
        f"ready {ready:.2f} s after the start with {asked.events:,} events in the log (under 1.5); "
        f"importing Flask and gunicorn takes {yardstick:.2f} s; ratio {ready / yardstick:.1f}"
    )


def fill(data: Path, events: int) -> None:
    """Write a log like that of a stopped service, with many events per commit, as under load."""
    log = open_sqlite(data, SystemClock(), max_bytes=MAX_BYTES)
    pending = []
    for number in range(events):
        event = make_event(consumer=f"group-{number % 1000}", total_lag=number)
        pending.append(log.begin(event, to_wire(event)))
        if len(pending) == 250:
            pending.pop().wait()
            pending.clear()
    log.close()


def to_ready(data: Path) -> float:
    service = Service(data, max_log_bytes=str(MAX_BYTES))
    started = time.perf_counter()
    with service:
        return time.perf_counter() - started


def importing(modules: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
