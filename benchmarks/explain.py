"""Measures an explanation of one group beside the same group's JSON, in a log with many groups.

PYTHONPATH=tests python benchmarks/explain.py [--groups 10000] [--events 500] [--times 40]

The group has as many events as an explanation reads, and ``watch`` has a note on all groups.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from flask.testing import FlaskClient
from scrape import filled

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.event import Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.sqlite import SqliteEventLog
from karrot.eventlog.watch_data_of_groups import GroupHealth, WatchedCluster
from support.burrow.lag_events import make_event, make_partition
from support.web.website import make_website

CLUSTER, GROUP = "prod-0", "team-0-service-000000-consumer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("groups", 10_000), ("events", 500), ("times", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        (place := Path(directory) / "log").mkdir()
        with closing(filled(place, asked.groups)) as log:
            fill(log, asked.groups, asked.events)
            client = make_website(log=log, clock=SystemClock()).client
            paths = ("group", "explain")
            for path in paths:
                took(client, path)
            found: dict[str, list[tuple[float, float]]] = {path: [] for path in paths}
            for _ in range(asked.times):
                for path in paths:
                    found[path].append(took(client, path))
    (group_s, group_cpu), (wall_s, cpu_s) = (map(statistics.median, zip(*found[path], strict=True)) for path in paths)
    longest = max(wall for wall, _ in found["explain"])
    print(f"{asked.groups} groups, {asked.events} events of the group; milliseconds, of CPU in brackets")
    print(f"  the group as JSON: {group_s * 1000:.1f} [{group_cpu * 1000:.1f}]")
    print(f"  its explanation: {wall_s * 1000:.1f} [{cpu_s * 1000:.1f}], at most {longest * 1000:.0f} (under 200)")
    print(f"  an explanation takes {cpu_s / group_cpu:.1f} times the CPU of the group's JSON")


def fill(log: SqliteEventLog, groups: int, events: int) -> None:
    """Give the group its events, with 50 partitions each, and all groups a place in the note of ``watch``."""
    partitions = tuple(make_partition(partition=number) for number in range(50))
    now_ms = SystemClock().wall_ms()
    event = make_event(cluster=CLUSTER, consumer=GROUP, source=Source.KAFKA, partitions=partitions, partition_count=50)
    for number in range(events):
        told = event._replace(
            observed_at_ms=now_ms - 10_000 * (events - number), status_text="OK" if number < events / 2 else "ERR"
        )
        log.append(told, to_wire(told))
    names = (f"team-{number % 40}-service-{number:06d}-consumer" for number in range(groups))
    health = tuple(GroupHealth(name, "Stable", 3, 1, 2, 0, 40_000) for name in names)
    log.lead()
    watch_data_of_groups.keep(log, WatchedCluster(CLUSTER, now_ms, 1.0, log.log_time_ms(), 3_600_000, health))


def took(client: FlaskClient, path: str) -> tuple[float, float]:
    """Return the seconds of a request, of the wall clock and of CPU."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    answer = client.get(f"/api/v1/{path}", query_string={"cluster": CLUSTER, "consumer": GROUP})
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


if __name__ == "__main__":
    main()
