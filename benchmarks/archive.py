"""Measures the archive reporter; the yardstick writes the same lines to one gzip file.

PYTHONPATH=tests python benchmarks/archive.py [--events 50000] [--partitions 12]

Each way is measured three times in turn, and the median is printed. The log is in memory, so that only the reporter is
measured. Times are CPU seconds.
"""

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from karrot.burrow.payload import to_wire
from karrot.event_json_line import encode
from karrot.eventlog.base import READ_LIMIT, Cursor, StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.archive import build
from karrot.reporters.base import Unreported
from support.burrow.lag_events import make_event, make_partition
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context

ROUNDS = 3


def made(count: int, partitions: int) -> list[StoredEvent]:
    """Return a log with this number of events, of a thousand groups, ten per millisecond."""
    clock = ManualClock()
    found = []
    for number in range(count):
        listed = tuple(make_partition(partition=each, current_lag=number % 7919 + each) for each in range(partitions))
        event = make_event(
            consumer=f"group-{number % 1000}",
            total_lag=number % 9973,
            observed_at_ms=clock.wall_ms(),
            max_lag=listed[0],
            partitions=listed,
        )
        at_ms = clock.wall_ms() + number // 10
        found.append(StoredEvent("9f3c", number + 1, at_ms, summarize(event, at_ms), to_wire(event), event))
    return found


class Log(MemoryEventLog):
    """A log with these events, so that only the reporter is measured."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        super().__init__(ManualClock(wall=2**42))
        self._stored = events

    def read(self, after: int, limit: int = READ_LIMIT) -> Sequence[StoredEvent]:
        return self._stored[after : after + limit]


def archived(events: Sequence[StoredEvent], place: Path) -> None:
    """Archive the events like the feed: one report after another, until none is left."""
    log = Log(events)
    reporter = build(make_context("archive", {"dir": str(place)}))
    left = Unreported(log, Cursor("9f3c", 0))
    while left.peek() is not None:
        reporter.report(left)
        left = Unreported(log, left.cursor)
    reporter.close()
    log.close()


def plain(lines: Sequence[bytes], place: Path) -> None:
    """Write the given lines to one gzip file."""
    with gzip.open(place, "wb", compresslevel=6) as file:
        for line in lines:
            file.write(line)


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time, which leaves out waits for the disk and other work on the machine."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--partitions", type=int, default=12)
    asked = parser.parse_args()
    events = made(asked.events, asked.partitions)
    lines = [encode(event) for event in events]
    ours, theirs, encoding = [], [], []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for number in range(ROUNDS):
            ours.append(seconds(partial(archived, events, place / str(number))))
            theirs.append(seconds(partial(plain, lines, place / f"{number}.gz")))
            encoding.append(seconds(lambda: [encode(event) for event in events]))
        segments = list((place / "0").rglob("*.jsonl.gz"))
        size = sum(each.stat().st_size for each in segments)
        whole = (place / "0.gz").stat().st_size
    print(f"{asked.events} events, {sum(map(len, lines)) / asked.events:.0f} bytes a line")
    print(f"archive      {asked.events / median(ours):8.0f} events a second, {len(segments)} segments, {size} bytes")
    print(f"gzip alone   {asked.events / median(theirs):8.0f} events a second, one file, {whole} bytes")
    print(f"encode alone {asked.events / median(encoding):8.0f} events a second")
    print(f"archive takes {median(ours) / median(theirs):.2f} of the time of gzip alone")


if __name__ == "__main__":
    main()
