"""Measures how long after Burrow posts a verdict a scrape shows it.

PYTHONPATH=tests python benchmarks/webhook_to_scrape.py [--groups 200] [--posts 1000] [--workers 2]

A fake Burrow posts verdicts over a reused connection, one after the other. After each 202, another connection scrapes
`karrot_consumer_lag` from `/metrics` until the group has the new lag. Verdicts without a change are sent but not
measured. The yardstick is the same scrape alone.
"""

import argparse
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from karrot.burrow.payload import to_wire
from karrot.demo.simulated_burrow import SimulatedBurrow
from karrot.event import LagEvent
from support.service.karrot_service import Service
from support.service.open_loop import percentile

PAGE = "/metrics?name[]=karrot_consumer_lag"
TARGET_MS = 50


class Shown(NamedTuple):
    """Seconds from the first byte of a verdict to its 202 and to a page that has it, and the number of pages."""

    stored: float
    visible: float
    pages: int


def verdicts(groups: int) -> Iterator[LagEvent]:
    """Yield the verdicts of a Burrow in the order of its own time."""
    now_ms = int(time.time() * 1000)
    burrow = SimulatedBurrow(groups, seed=7, speed=1, start_ms=now_ms)
    while True:
        now_ms += 1000
        yield from (event for event in burrow.due(now_ms) if not event.consumer.startswith("burrow-"))


def answered(connection: HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    """Return the body of a successful answer."""
    connection.request(method, path, body)
    response = connection.getresponse()
    text = response.read()
    assert response.status in (200, 202), text
    return text


def lag_on(page: bytes, group: str) -> int | None:
    """Return the value of the group's sample."""
    found = re.search(rb'consumer="%b"} (\d+)$' % re.escape(group.encode()), page, re.MULTILINE)
    return int(found[1]) if found else None


def measured(
    events: Iterator[LagEvent], count: int, burrow: HTTPConnection, prometheus: HTTPConnection
) -> Iterator[Shown]:
    """Send verdicts until this number of them changed the page."""
    shown: dict[str, int | None] = {}
    while count:
        event = next(events)
        body = to_wire(event)
        started = time.perf_counter()
        answered(burrow, "POST", "/burrow", body)
        stored = time.perf_counter() - started
        if shown.get(event.consumer) != event.total_lag:
            pages = 1
            while lag_on(answered(prometheus, "GET", PAGE), event.consumer) != event.total_lag:
                pages += 1
            yield Shown(stored, time.perf_counter() - started, pages)
            count -= 1
        shown[event.consumer] = event.total_lag


def page_alone(prometheus: HTTPConnection, times: int) -> list[float]:
    """Return the seconds of a scrape without posts."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        answered(prometheus, "GET", PAGE)
        seconds.append(time.perf_counter() - started)
    return seconds


def told(what: str, seconds: list[float]) -> None:
    """Print times in milliseconds."""
    p50, p99, worst = (1000 * percentile(seconds, percent) for percent in (50, 99, 100))
    print(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, at worst {worst:.1f} ms")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--posts", type=int, default=1000)
    parser.add_argument("--workers", default="2")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        Service(Path(scratch) / "data", workers=asked.workers) as service,
        closing(HTTPConnection("127.0.0.1", service.port)) as burrow,
        closing(HTTPConnection("127.0.0.1", service.port)) as prometheus,
    ):
        rows = list(measured(verdicts(asked.groups), asked.posts, burrow, prometheus))
        told(f"{asked.posts} verdicts on {asked.groups} groups: post to 202", [each.stored for each in rows])
        told("post to a page that shows it", [each.visible for each in rows])
        told("the page alone", page_alone(prometheus, asked.posts))
    late = sum(each.pages > 1 for each in rows)
    print(f"the first page after the 202 did not have it yet: {late} times")
    p99 = 1000 * percentile([each.visible for each in rows], 99)
    print(f"target: p99 under {TARGET_MS} ms: {'met' if p99 < TARGET_MS else 'MISSED'}")


if __name__ == "__main__":
    main()
