"""Compares the event log in PostgreSQL with SQLite, and three replicas behind HAProxy with one.

PYTHONPATH=tests python benchmarks/replicas.py [--seconds 5] [--rounds 3]

It needs PostgreSQL, HAProxy, ``wrk``, ``hey`` and strace; Debian has all of them. strace delays each flush of the
write-ahead log. Only the first part and the CPU times have no strace.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import ingest
from ingest import BODY, hey, karrot, told, wrk

from karrot.burrow.payload import to_wire
from support.burrow.lag_events import make_event
from support.eventlog.postgres_server import PASSWORD, PostgresServer, running_postgres
from support.servers.faulty_proxy import faulty_proxy
from support.service.free_ports import free_port
from support.service.karrot_service import Service
from support.waiting import wait_for

_DELAYS_MS = (0, 5, 20)
_ROUND_TRIPS_MS = (0, 1, 5, 20)
_MANY = 256
_REPLICAS = 3
_GROUPS = 10_000
_HAPROXY = """
global
    maxconn 8000
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 10s
    option http-keep-alive
frontend karrot
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance roundrobin
    {servers}
"""


class Behind(NamedTuple):
    """Replicas behind HAProxy: the port, and every process."""

    port: int
    services: Sequence[Service]
    processes: Sequence[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        (place / "body.json").write_bytes(BODY)
        (place / "password").write_text(PASSWORD)
        with running_postgres(shared_buffers="256MB") as server:
            one_worker(place, server, asked.seconds, asked.rounds)
            scrape(place, server)
            herd(place, server)
            cpu_of_replicas(place, server, asked.seconds, asked.rounds)
            distant_database(place, server, asked.seconds)
        for delay_ms in _DELAYS_MS:
            slow_flush(place, delay_ms, asked.seconds, asked.rounds)


def one_worker(place: Path, server: PostgresServer, seconds: int, rounds: int) -> None:
    """Compare one worker on PostgreSQL with one worker on SQLite, in turn."""
    with karrot(place, "1") as sqlite, replica(place, server, "one", workers="1") as postgres:
        wrk(place, sqlite.port, 1)
        wrk(place, postgres.port, 1)
        pairs, cpu = [], {"sqlite": 0.0, "postgres": 0.0}
        for _ in range(rounds):
            before_s = cpu_of(service_processes(sqlite))
            first = wrk(place, sqlite.port, seconds)
            cpu["sqlite"] += cpu_of(service_processes(sqlite)) - before_s
            before_s = cpu_of([*service_processes(postgres), *server.processes()])
            second = wrk(place, postgres.port, seconds)
            cpu["postgres"] += cpu_of([*service_processes(postgres), *server.processes()]) - before_s
            pairs.append((first, second))
    events = {name: seconds * sum(pair[at].rate for pair in pairs) for at, name in enumerate(("sqlite", "postgres"))}
    told(
        "PostgreSQL, one worker, 32 kept connections",
        statistics.median(second.rate for _, second in pairs),
        f"events/s, p99 {statistics.median(second.p99_ms for _, second in pairs):.0f} ms; "
        f"{statistics.median(second.rate / first.rate for first, second in pairs):.2f} times SQLite "
        f"({min(second.rate / first.rate for first, second in pairs):.2f} to "
        f"{max(second.rate / first.rate for first, second in pairs):.2f}; aim 0.5); CPU per event "
        f"{cpu['postgres'] / events['postgres'] * 1e6:.0f} µs with PostgreSQL's processes, "
        f"SQLite {cpu['sqlite'] / events['sqlite'] * 1e6:.0f} µs",
    )


def scrape(place: Path, server: PostgresServer) -> None:
    """Compare scrapes of 10,000 groups, a tenth changed before each."""
    with karrot(place, "1") as sqlite, replica(place, server, "scrape", workers="1") as postgres:
        medians = []
        for service in (sqlite, postgres):
            took = []
            for number in range(6):
                post_groups(service, range(_GROUPS) if number == 0 else range(0, _GROUPS, 10))
                began = time.perf_counter()
                service.get("/metrics")
                took.append(time.perf_counter() - began)
            medians.append(statistics.median(took[1:]))
    told(
        "scrape of 10,000 groups, a tenth changed",
        medians[1],
        f"s; {medians[1] / medians[0]:.2f} times SQLite (aim 1.3)",
    )


def herd(place: Path, server: PostgresServer) -> None:
    """Simulate Burrow's failover: 2,000 posts at once through HAProxy to three replicas."""
    with replicas(place, server, "herd", _REPLICAS) as behind:
        wrk(place, behind.port, 1)
        seen = hey(place, behind.port, "-n", "2000", "-c", "2000", "-disable-keepalive")
    told(
        "herd of 2,000 connections",
        seen.slowest_s,
        f"s for the slowest (aim 3); {dict(seen.statuses)}, {seen.errors} errors",
    )


def cpu_of_replicas(place: Path, server: PostgresServer, seconds: int, rounds: int) -> None:
    """Compare the CPU time of an event in all processes: three replicas and one, without delay."""
    spent = {}
    with replicas(place, server, "cpu1", 1) as one, replicas(place, server, "cpu3", _REPLICAS) as three:
        for name, behind in (("one", one), ("three", three)):
            wrk(place, behind.port, 1)
            events, cpu_s = 0.0, 0.0
            for _ in range(rounds):
                everything = [*behind.processes, *server.processes()]
                before_s = cpu_of(everything)
                events += many(place, behind.port, seconds).rate * seconds
                cpu_s += cpu_of(everything) - before_s
            spent[name] = cpu_s / events * 1e6
    told(
        "CPU per event, three replicas",
        spent["three"],
        f"µs; {spent['three'] / spent['one']:.2f} times one replica (aim 1.2)",
    )


def distant_database(place: Path, server: PostgresServer, seconds: int) -> None:
    """Measure one replica whose packets to the database take longer, through a proxy that delays them."""
    for round_trip_ms in _ROUND_TRIPS_MS:
        with faulty_proxy(server.port) as proxy:
            proxy.delay_s = round_trip_ms / 2000
            url = server.url("bench_distant").replace(f":{server.port}/", f":{proxy.port}/")
            with replica(place, server, "distant", workers="1", event_log=url) as service:
                many(place, service.port, 1)
                seen = many(place, service.port, seconds)
        told(
            f"a round trip of {round_trip_ms} ms more, {_MANY} connections",
            seen.rate,
            f"events/s, p99 {seen.p99_ms:.0f} ms",
        )


def slow_flush(place: Path, delay_ms: int, seconds: int, rounds: int) -> None:
    """Compare three replicas with one while each flush of PostgreSQL's write-ahead log takes longer."""
    inject = f"inject=fdatasync:delay_exit={delay_ms * 1000}"
    wrapper = ("strace", "-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "-e", "trace=fdatasync", "-e", inject)
    with (
        running_postgres(wrapper=wrapper, shared_buffers="256MB") as server,
        replicas(place, server, "flush1", 1) as one,
        replicas(place, server, "flush3", _REPLICAS) as three,
    ):
        pairs = [(many(place, one.port, seconds), many(place, three.port, seconds)) for _ in range(rounds)]
    told(
        f"{delay_ms} ms more per flush, {_MANY} connections, one replica",
        statistics.median(first.rate for first, _ in pairs),
        f"events/s, p99 {statistics.median(first.p99_ms for first, _ in pairs):.0f} ms; three replicas "
        f"{statistics.median(second.rate for _, second in pairs):,.0f} events/s, p99 "
        f"{statistics.median(second.p99_ms for _, second in pairs):.0f} ms, "
        f"{statistics.median(second.rate / first.rate for first, second in pairs):.2f} times (aim 1.3 at 5 ms)",
    )


def many(place: Path, port: int, seconds: int) -> ingest.Closed:
    """Run a closed loop with 256 connections."""
    kept, ingest.CONNECTIONS = ingest.CONNECTIONS, _MANY
    try:
        return wrk(place, port, seconds)
    finally:
        ingest.CONNECTIONS = kept


def post_groups(service: Service, numbers: range) -> None:
    event = make_event()
    with ThreadPoolExecutor(16) as pool:
        for answer in pool.map(lambda n: service.post(to_wire(event._replace(consumer=f"g{n}"))), numbers):
            assert answer.status == 202


@contextmanager
def replica(place: Path, server: PostgresServer, schema: str, **settings: str) -> Iterator[Service]:
    """Start a service on a schema."""
    directory = Path(tempfile.mkdtemp(dir=place)) / "data"
    url, password = server.url(f"bench_{schema}"), str(place / "password")
    settings = {"threads": "16", "log": "WARNING", "event_log": url, "event_log_password_file": password} | settings
    service = Service(directory)
    service.settings |= settings
    with service:
        yield service


@contextmanager
def replicas(place: Path, server: PostgresServer, schema: str, count: int) -> Iterator[Behind]:
    """Start replicas of one worker each on one schema, behind HAProxy."""
    with ExitStack() as running:
        services = [running.enter_context(replica(place, server, schema, workers="1")) for _ in range(count)]
        port = free_port()
        lines = "\n    ".join(f"server r{n} 127.0.0.1:{each.port}" for n, each in enumerate(services))
        configuration = place / f"haproxy-{port}.cfg"
        configuration.write_text(_HAPROXY.format(port=port, servers=lines))
        proxy = running.enter_context(subprocess.Popen(["haproxy", "-q", "-f", str(configuration)]))
        running.callback(proxy.kill)
        wait_for(
            lambda: (
                subprocess.run(
                    ["curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{port}/healthz"], check=False
                ).returncode
                == 0
            )
        )
        yield Behind(port, services, [proxy.pid, *(pid for each in services for pid in service_processes(each))])


def service_processes(service: Service) -> list[int]:
    return [service.pid, *service.workers()]


def cpu_of(pids: Sequence[int]) -> float:
    """Return the seconds of CPU time that the processes have taken."""
    total = 0
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(stat[11]) + int(stat[12])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
