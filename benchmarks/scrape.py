"""Measures time, size and memory of a scrape by number of groups; the yardstick is prometheus-client's renderer.

PYTHONPATH=tests python benchmarks/scrape.py [GROUPS ...]
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.eventlog.sqlite import SqliteEventLog, datadir
from karrot.reporters.prometheus import LogCollector, build, render
from support.burrow.lag_events import make_event
from support.reporters.reporter_context import make_context

MAX_BYTES = 4 << 30
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def filled(directory: Path, groups: int) -> SqliteEventLog:
    """Return a log with this number of groups."""
    clock = SystemClock()
    datadir.prepare(directory, clock, max_bytes=MAX_BYTES)
    log = SqliteEventLog(directory, clock, stale_after_ms=3_600_000, max_bytes=MAX_BYTES, max_consumers=groups)
    event = make_event(observed_at_ms=clock.wall_ms())
    for number in range(groups):
        told = event._replace(
            cluster=f"prod-{number % 4}", consumer=f"team-{number % 40}-service-{number:06d}-consumer"
        )
        log.append(told, to_wire(told))
    return log


def rows(collector: LogCollector) -> int:
    """Only read the log, without making text."""
    collector.families()
    return 0


def scrape(collector: LogCollector) -> int:
    """Render like the web application, piece by piece; return the size."""
    return sum(map(len, render({"prometheus": collector}, OPENMETRICS)[1]))


def by_the_client(collector: LogCollector) -> int:
    """Render with prometheus-client; return the size."""
    registry = CollectorRegistry()
    registry.register(collector)
    return len(generate_latest(registry))


def measure(name: str, groups: int, work: Callable[[], int]) -> None:
    """Print the best of three, and the growth of the process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best, size = min(timed(work) for _ in range(3))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{name:9} {groups:7} groups  {best:6.2f} s  {size / 1e6:6.1f} MB  peak memory +{grown / 1024:.0f} MiB")


def timed(work: Callable[[], int]) -> tuple[float, int]:
    """Return the seconds and the result."""
    started = time.perf_counter()
    size = work()
    return time.perf_counter() - started, size


if __name__ == "__main__":
    for groups in map(int, sys.argv[1:] or ("10000",)):
        with tempfile.TemporaryDirectory() as directory:
            log = filled(Path(directory), groups)
            collector = build(make_context("prometheus", log=log)).collector(log)
            measure("rows", groups, partial(rows, collector))
            measure("rendered", groups, partial(scrape, collector))
            if groups <= 10_000:
                measure("client", groups, partial(by_the_client, collector))
            log.close()
