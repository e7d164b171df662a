"""Measures the cost of the pages: the list of many groups, and scrapes and events while people read pages.

PYTHONPATH=tests python benchmarks/pages.py [--groups 10000] [--rate 333] [--seconds 30] [--rounds 3] [--scrapes 5]

Each measurement has its yardstick in the same run: a scrape of the same log, a scrape without pages, and the same
events without readers, in turns. ``--rounds 0`` and ``--scrapes 0`` leave out the events or the scrapes. The scrapes
need PostgreSQL.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flask.testing import FlaskClient
from harness.browser_load import BrowserLoad
from harness.periodic_work import PeriodicCurl
from open_loop import BODY, evenly, karrot, told
from replicas import replica
from scrape import filled

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite import SqliteEventLog
from support.burrow.lag_events import make_event
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import PASSWORD, running_postgres
from support.eventlog.sqlite_log import open_sqlite
from support.service.open_loop import percentile, send_open_loop
from support.web.website import make_website

BROWSERS = 20
REFRESH_S = 5.0
SCRAPE_S = 15.0
TROUBLED = 100
PAST = 30
SHOWN = 50
LOOKS = 5
CHANGED = 20_000
OPEN_PAGES = 6
HTML = {"Accept": "text/html", "Accept-Encoding": "gzip"}


class Sizes(NamedTuple):
    """The options of the command line."""

    groups: int
    rate: int
    seconds: int
    rounds: int
    scrapes: int


def main() -> None:
    sizes = parsed()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        look(Path(directory), sizes.groups)
        if sizes.rounds:
            look_while_events_come(Path(directory), sizes)
        if sizes.scrapes:
            scrape_beside_pages(Path(directory), sizes.scrapes)


def scrape_beside_pages(place: Path, times: int) -> None:
    """Scrape one worker after every group has changed, alone and with several pages opened at once, in turns."""
    place.chmod(0o755)
    (place / "password").write_text(PASSWORD)
    bounds: dict[str, Any] = {"max_consumers": CHANGED, "max_bytes": 1 << 30, "patience_s": 60.0}
    with (
        karrot(place / "scraped", "1") as service,
        closing(open_sqlite(service.directory, SystemClock(), prepare=False, **bounds)) as log,
    ):
        compare_scrapes("SQLite", service.port, log, times)
    with (
        running_postgres(shared_buffers="256MB") as server,
        replica(place, server, "pages", workers="1") as service,
        open_postgres(server, "bench_pages", SystemClock(), **bounds) as log,
    ):
        compare_scrapes("PostgreSQL", service.port, log, times)


def compare_scrapes(store: str, port: int, log: EventLog, times: int) -> None:
    alone, beside, slowest = [], [], 0.0
    change(log)
    together(port, 0)
    for _ in range(times):
        change(log)
        alone.append(together(port, 0)[-1])
        change(log)
        *pages, scrape = together(port, OPEN_PAGES)
        beside.append(scrape)
        slowest = max(slowest, *pages)
    ratio = statistics.median(beside) / statistics.median(alone)
    print(
        f"{store}, {CHANGED} groups changed: a scrape takes {statistics.median(alone):.2f} s, with {OPEN_PAGES} pages "
        f"{statistics.median(beside):.2f} s: {ratio:.2f} times (below 1.3); the slowest page {slowest:.2f} s",
        flush=True,
    )


def change(log: EventLog) -> None:
    """Store an event of every group."""
    event = make_event(observed_at_ms=SystemClock().wall_ms())
    told = (
        event._replace(cluster=f"prod-{number % 4}", consumer=f"team-{number % 40}-service-{number:06d}-consumer")
        for number in range(CHANGED)
    )
    for pending in [log.begin(each, to_wire(each)) for each in told]:
        pending.wait()


def together(port: int, pages: int) -> list[float]:
    """Return the seconds of each page and of a scrape, all requested at once, by programs of their own."""
    paths = [*(f"/?page={number}" for number in range(1, pages + 1)), "/metrics"]
    command = ["curl", "-sf", "-o", "/dev/null", "-H", "Accept-Encoding: gzip", "-w", "%{time_total}"]
    running = [
        subprocess.Popen([*command, f"http://127.0.0.1:{port}{path}"], stdout=subprocess.PIPE, text=True)
        for path in paths
    ]
    return [float(each.communicate()[0]) for each in running]


def look(place: Path, groups: int) -> None:
    """Measure the first page, cold and refreshed, and a scrape; CPU time too, which other load affects less."""
    (place / "log").mkdir()
    with closing(filled(place / "log", groups)) as log:
        give_past(log)
        client = make_website(log=log, clock=SystemClock()).client
        first = took(client, "/")
        refreshes, scrapes = [], []
        for _ in range(LOOKS):
            time.sleep(REFRESH_S)  # as long as a browser waits, so that no cached page is used
            refreshes.append(took(client, "/"))
            again = took(client, "/")
            scrapes.append(took(client, "/metrics"))
    refresh, scrape = median(refreshes), median(scrapes)
    print(f"{groups} groups, the {SHOWN} that are shown with {PAST} events each; milliseconds, of CPU in brackets")
    print(f"  the first look of all: {first.said()} (under 300); {first.size / 1000:.0f} kB gzipped (under 300)")
    print(f"  a refresh after {REFRESH_S:.0f} s: {refresh.said()}; the next browser's: {again.said()}")
    print(f"  a scrape: {scrape.said()}; a refresh takes {refresh.cpu_s / scrape.cpu_s:.2f} times its CPU (below 1)")


def give_past(log: SqliteEventLog) -> None:
    """Give the first groups a history: as many events as their curves show."""
    event = make_event(observed_at_ms=SystemClock().wall_ms(), status_text="ERR")
    for number in range(SHOWN):
        name = f"team-{number % 40}-service-{number:06d}-consumer"
        for lag in range(PAST):
            told_now = event._replace(cluster=f"prod-{number % 4}", consumer=name, total_lag=lag * 1000 + number)
            log.append(told_now, to_wire(told_now))


class Took(NamedTuple):
    """The seconds and bytes of an answer."""

    wall_s: float
    cpu_s: float
    size: int

    def said(self) -> str:
        """Return the times as a text in milliseconds."""
        return f"{self.wall_s * 1000:.0f} [{self.cpu_s * 1000:.0f}]"


def took(client: FlaskClient, path: str) -> Took:
    """Request a page and measure it."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = client.get(path, headers=HTML)
    size = len(answer.data)
    assert answer.status_code == 200
    return Took(time.perf_counter() - wall, time.process_time() - cpu, size)


def median(found: list[Took]) -> Took:
    """Return the measurement with the median CPU time."""
    return sorted(found, key=lambda each: each.cpu_s)[len(found) // 2]


def look_while_events_come(place: Path, sizes: Sizes) -> None:
    """Post events at the same rate without readers, with many readers, and with a Prometheus, in turns."""
    print(f"{'':38}{'p50':>8}{'p99':>8}{'p99.9':>8}{'slowest':>9}{'sent late, p99':>16}  connections, answers")
    p99s: dict[str, list[float]] = {}
    with karrot(place / "watched", "2") as service:
        request = partial(verdict, sizes.groups)
        send_open_loop(service.port, evenly(800, sizes.groups / 800), request)
        post = partial(send_open_loop, service.port, evenly(sizes.rate, sizes.seconds), request)
        kinds: dict[str, AbstractContextManager[BrowserLoad | PeriodicCurl | None]]
        for _ in range(sizes.rounds):
            kinds = {"nobody looks": nullcontext(), **readers(service.port)}
            for who, reading in kinds.items():
                with reading as curls:
                    played = told(f"{sizes.rate}/s, {who}", post())
                p99s.setdefault(who, []).append(percentile(played.latencies, 99))
                if curls is not None:
                    print(f"    {len(curls.took_s)} times, median {statistics.median(curls.took_s) * 1000:.0f} ms")
                    assert set(curls.statuses) == {"200"}
    alone, *others = ((who, statistics.median(each)) for who, each in p99s.items())
    for who, p99 in others:
        print(f"  {who}: p99 {p99 / alone[1]:.2f} times that with nobody (at most 1.5), medians of {sizes.rounds}")


def verdict(groups: int, number: int) -> bytes:
    """Return a complete request about one group after the other, now. One group in a hundred is not OK."""
    group = number % groups
    now_ms = SystemClock().wall_ms()
    body = BODY.replace(b'"orders-svc"', b'"team-%02d-service-%06d-consumer"' % (group % 40, group))
    for then, ago_ms in ((b"1746950399000", 1_000), (b"1746950250000", 150_000)):
        body = body.replace(then, b"%d" % (now_ms - ago_ms))
    if group % TROUBLED:
        body = body.replace(b'"WARN"', b'"OK"')
    head = b"POST /burrow HTTP/1.1\r\nHost: karrot\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def readers(port: int) -> dict[str, BrowserLoad | PeriodicCurl]:
    """Run many readers of the page, or a Prometheus."""
    return {
        f"{BROWSERS} browsers look": BrowserLoad(port, BROWSERS, REFRESH_S),
        "it is scraped": PeriodicCurl(port, "/metrics", SCRAPE_S),
    }


def parsed() -> Sizes:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=333, help="events a second: 10,000 groups every 30 s")
    parser.add_argument("--seconds", type=int, default=30, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scrapes", type=int, default=5, help="rounds of scrapes beside pages")
    return Sizes(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
