"""Measures latencies at a steady rate, at that rate during scrapes, and under overload.

PYTHONPATH=tests python benchmarks/open_loop.py [--seconds 60] [--rate 800] [--groups 10000] [--overload 10]

Latencies count from the due time of a request, and connections are used like in Burrow
(`support.service.open_loop`).
The yardstick is an empty Flask endpoint under the same gunicorn settings and the same arrivals. If ``autocannon``
is on the PATH, it measures the steady rate too.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness.baseline_server import run_baseline
from harness.periodic_work import PeriodicCurl, command_output

from karrot.clock import SystemClock
from karrot.eventlog.base import StoredEvent
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.sqlite_log import open_sqlite
from support.service.karrot_service import Service
from support.service.open_loop import OpenLoopResult, percentile, send_open_loop

BODY = recorded_body("karrot_v1.2.1_warn_clientid_always_empty.json")
SCRAPE_S = 5.0
BURST = 2000
TIMES = 3
CALM_S = 15
CALM_RATE = 400
CALM_MS = 50


class Sizes(NamedTuple):
    """The options of the command line; times in seconds, the rate in requests per second."""

    seconds: int
    rate: int
    groups: int
    overload: int


def main() -> None:
    sizes = parsed()
    load, *_ = os.getloadavg()
    print(f"body {len(BODY)} bytes, {os.cpu_count()} cores, load average before it {load:.1f}; milliseconds")
    print(f"{'':38}{'p50':>8}{'p99':>8}{'p99.9':>8}{'slowest':>9}{'sent late, p99':>16}  connections, answers")
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place = Path(directory)
        alone = steady(place, sizes)
        scraped(place, sizes, alone)
        overload(place, sizes)


def steady(place: Path, sizes: Sizes) -> OpenLoopResult:
    """Measure the empty endpoint and Karrot at the rate, with two workers each."""
    due, request = evenly(sizes.rate, sizes.seconds), partial(verdict, sizes.groups)
    with run_baseline(place, "empty", "-w", "2", "-k", "gthread", "--threads", "16") as port:
        theirs = told("empty Flask endpoint", send_open_loop(port, due, request))
    with karrot(place / "steady", "2") as service:
        ours = told(f"Karrot, {sizes.rate}/s for {sizes.seconds} s", send_open_loop(service.port, due, request))
        by_autocannon(place, service.port, sizes)
    print(f"  p99 {ratio(ours, theirs):.2f} times that of the empty endpoint (p99 under 150 ms, every answer 202)")
    return ours


def scraped(place: Path, sizes: Sizes, alone: OpenLoopResult) -> None:
    """Measure the same while many groups are scraped every few seconds."""
    request = partial(verdict, sizes.groups)
    with karrot(place / "scraped", "2") as service:
        send_open_loop(service.port, evenly(1000, sizes.groups / 1000), request)
        with PeriodicCurl(service.port, "/metrics", SCRAPE_S) as scrapes:
            played = send_open_loop(service.port, evenly(sizes.rate, sizes.seconds), request)
    told(f"the same, {sizes.groups} groups scraped", played)
    print(
        f"  p99 {ratio(played, alone):.2f} times that without scrapes (under 150 ms); {len(scrapes.took_s)} scrapes, "
        f"the slowest {max(scrapes.took_s, default=0):.2f} s, statuses {dict(scrapes.statuses)}"
    )


def overload(place: Path, sizes: Sizes) -> None:
    """Send three times the capacity of one worker on new connections, then a calm rate."""
    request = partial(verdict, sizes.groups)
    with karrot(place / "overload", "1") as service:
        capacity = capacity_of(service.port, request)
        rate = TIMES * capacity
        flood = evenly(rate, sizes.overload)
        calm = [sizes.overload + at for at in evenly(CALM_RATE, CALM_S)]
        with run_baseline(place, "empty", "-w", "1", "-k", "gthread", "--threads", "16") as port:
            told(f"empty endpoint, {rate:.0f}/s", part(send_open_loop(port, flood, request), 0, len(flood)))
        played = send_open_loop(service.port, flood + calm, request)
        numbers = stored_numbers(service)
    under = told(f"Karrot, {rate:.0f}/s for {sizes.overload} s", part(played, 0, len(flood)))
    told(f"{CALM_RATE}/s afterwards", part(played, len(flood), len(played.statuses)))
    within = sum(each <= 2 for each in under.latencies)
    refused_but_stored = sum(numbers[number] > 0 for number in played.numbers(503))
    accepted_once = sum(numbers[number] == 1 for number in played.numbers(202))
    print(
        f"  {TIMES} times the capacity of {capacity:.0f}/s; answered within 2 s: {within / len(flood):.1%} (all); "
        f"stored though refused: {refused_but_stored} (none);\n"
        f"  accepted and stored once: {accepted_once} of {len(played.numbers(202))}; "
        f"p99 under {CALM_MS} ms {calm_after(played.latencies[len(flood) :])} s after the end (within 10)"
    )


def karrot(directory: Path, workers: str) -> Service:
    """Return the service on a new directory, not started yet."""
    directory.mkdir()
    return Service(directory / "data", workers=workers, threads="16", log="WARNING")


def verdict(groups: int, number: int) -> bytes:
    """Return a complete request about one group after the other, with its number in the extras."""
    group = b'"team-%02d-service-%06d-consumer"' % (number % 40, number % groups)
    body = BODY.replace(b'"orders-svc"', group).replace(b'"value1"', b'"%d"' % number)
    head = b"POST /burrow HTTP/1.1\r\nHost: karrot\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def stored_numbers(service: Service) -> Counter[int]:
    """Return how often each request's event is in the log."""
    log = open_sqlite(service.directory, SystemClock(), prepare=False, max_bytes=1 << 30)
    found: Counter[int] = Counter()
    after = 0
    try:
        while page := log.read(after):
            found.update(int(dict(each.event.extras)["key1"]) for each in page if isinstance(each, StoredEvent))
            after = page[-1].seq
    finally:
        log.close()
    return found


def capacity_of(port: int, request: Callable[[int], bytes]) -> float:
    """Return accepted events per second, the median of three bursts; their numbers are negative to keep them apart."""
    return sorted(burst(port, lambda number: request(-1 - number)) for _ in range(3))[1]


def burst(port: int, request: Callable[[int], bytes]) -> float:
    """Return accepted events per second for the number of events of a failover, all due at once."""
    played = send_open_loop(port, [0.0] * BURST, request)
    taken = [played.latencies[number] for number in played.numbers(202)]
    return len(taken) / max(taken)


def evenly(rate: float, seconds: float) -> list[float]:
    """Return the due times of requests at a steady rate."""
    return [number / rate for number in range(int(rate * seconds))]


def part(played: OpenLoopResult, start: int, end: int) -> OpenLoopResult:
    """Return the results of some of the requests; the connections are still those of all."""
    return OpenLoopResult(
        played.statuses[start:end], played.latencies[start:end], played.late[start:end], played.opened
    )


def calm_after(latencies: Sequence[float]) -> int:
    """Return the whole seconds until the 99th percentile of each second stays below the limit."""
    seconds = [latencies[start : start + CALM_RATE] for start in range(0, len(latencies), CALM_RATE)]
    restless = [number for number, each in enumerate(seconds, 1) if percentile(each, 99) * 1000 > CALM_MS]
    return max(restless, default=0)


def by_autocannon(place: Path, port: int, sizes: Sizes) -> None:
    """Measure with autocannon: 200 connections share the rate, corrected for requests behind a slow answer."""
    if shutil.which("autocannon") is None:
        print("  autocannon is not on the PATH: no second opinion")
        return
    body = place / "body.json"
    body.write_bytes(BODY)
    command = ["autocannon", "-j", "-c", "200", "-R", str(sizes.rate), "-d", str(sizes.seconds), "-m", "POST"]
    seen = json.loads(command_output([*command, "-i", str(body), f"http://127.0.0.1:{port}/burrow"]))
    latency = seen["latency"]
    print(
        f"  autocannon: {seen['2xx']} times 2xx, {seen['non2xx']} others, {seen['errors']} errors; "
        f"p50 {latency['p50']}, p99 {latency['p99']}, p99.9 {latency['p99_9']}, slowest {latency['max']} ms"
    )


def told(what: str, played: OpenLoopResult) -> OpenLoopResult:
    """Print a line of the table."""
    times = [percentile(played.latencies, percent) * 1000 for percent in (50, 99, 99.9, 100)]
    late = percentile(played.late, 99) * 1000
    answers = ", ".join(f"{count} x {status or 'none'}" for status, count in sorted(played.answers().items()))
    print(f"{what:38}{''.join(f'{each:8.1f}' for each in times)}{late:17.1f}  {played.opened}, {answers}", flush=True)
    return played


def ratio(played: OpenLoopResult, other: OpenLoopResult) -> float:
    """Return the ratio of the 99th percentiles."""
    return percentile(played.latencies, 99) / percentile(other.latencies, 99)


def parsed() -> Sizes:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="of the steady rate")
    parser.add_argument("--rate", type=int, default=800, help="requests a second")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--overload", type=int, default=10, help="seconds of it")
    return Sizes(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
