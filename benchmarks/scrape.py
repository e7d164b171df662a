"""Measures time, size and memory of a scrape by number of groups; the yardstick is prometheus-client's renderer.

PYTHONPATH=tests python benchmarks/scrape.py [GROUPS ...]
"""

import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.event import LagEvent
from karrot.eventlog.sqlite import SqliteEventLog, data_directory
from karrot.reporters.prometheus import LogCollector, build, render
from karrot.server.start_gunicorn import put_events_first
from karrot.web.metrics import gzipped
from support.burrow.lag_events import make_event
from support.reporters.reporter_context import make_context

MAX_BYTES = 4 << 30
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def filled(directory: Path, groups: int) -> SqliteEventLog:
    """Return a log with this number of groups."""
    clock = SystemClock()
    data_directory.prepare(directory, clock, max_bytes=MAX_BYTES)
    log = SqliteEventLog(directory, clock, stale_after_ms=3_600_000, max_bytes=MAX_BYTES, max_consumers=groups)
    event = make_event(observed_at_ms=clock.wall_ms())
    for number in range(groups):
        append_event(log, event, number)
    return log


def append_event(log: SqliteEventLog, event: LagEvent, number: int) -> None:
    """Append an event of the group with this number."""
    told = event._replace(cluster=f"prod-{number % 4}", consumer=f"team-{number % 40}-service-{number:06d}-consumer")
    log.append(told, to_wire(told))


def scrape(collector: LogCollector) -> int:
    """Render like the web application, piece by piece; return the size."""
    return sum(map(len, render({"prometheus": collector}, OPENMETRICS)[1]))


def scrape_gzipped(collector: LogCollector) -> int:
    """Render and compress like the web application; return the size."""
    return sum(map(len, gzipped(render({"prometheus": collector}, OPENMETRICS)[1])))


def change_a_tenth(log: SqliteEventLog, groups: int) -> None:
    """Append an event with another lag for every tenth group."""
    event = make_event(observed_at_ms=SystemClock().wall_ms(), total_lag=random.randrange(10**6))
    for number in range(0, groups, 10):
        append_event(log, event, number)


def by_the_client(collector: LogCollector) -> int:
    """Render with prometheus-client; return the size."""
    registry = CollectorRegistry()
    registry.register(collector)
    return len(generate_latest(registry))


def measure(
    name: str, groups: int, work: Callable[[], int], *, before: Callable[[], None] = lambda: None, times: int = 3
) -> None:
    """Print the median and the worst time, and the growth of the process."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = []
    for _ in range(times):
        before()
        started = time.perf_counter()
        size = work()
        took.append(time.perf_counter() - started)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    print(
        f"{name:24} {groups:7} groups  {statistics.median(took):6.3f} s, worst {max(took):6.3f} s  {size / 1e6:6.1f} MB"
        f"  peak memory +{grown / 1024:.0f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    for groups in map(int, sys.argv[1:] or ("10000",)):
        with tempfile.TemporaryDirectory() as directory:
            log = filled(Path(directory), groups)
            put_events_first()  # as in a worker
            collector = build(make_context("prometheus", log=log)).collector(log)
            change = partial(change_a_tenth, log, groups)
            measure("first", groups, partial(scrape, collector), times=1)
            measure("no group changed", groups, partial(scrape, collector), times=5)
            measure("a tenth changed", groups, partial(scrape, collector), before=change, times=5)
            measure("a tenth changed, gzipped", groups, partial(scrape_gzipped, collector), before=change, times=5)
            if groups <= 10_000:
                measure("prometheus-client", groups, partial(by_the_client, collector))
            log.close()
