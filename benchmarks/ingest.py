"""Measures events stored per second; the yardstick is an empty Flask endpoint under the same gunicorn settings.

PYTHONPATH=tests python benchmarks/ingest.py [--seconds 5] [--rounds 10]

It needs ``wrk`` (closed loop) and ``hey`` (many requests at once) on the PATH; Debian has both. Measurements with an
open loop are in `open_loop.py`.
"""

import argparse
import json
import os
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness.baseline_server import run_baseline
from harness.periodic_work import command_output

from support.burrow.recorded_bodies import recorded_body
from support.service.karrot_service import Service

BODY = recorded_body("karrot_v1.2.1_warn_clientid_always_empty.json")
CONNECTIONS = 32
GROUPS = 10_000
_POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("{place}/body.json", "rb")
wrk.body = file:read("*a")
file:close()
"""
_CLOSE = 'wrk.headers["Connection"] = "close"\n'
# Each group reads its own topic: no request finds the log-end history of the request before it in memory.
_POST_MANY = """
local body, at = wrk.body, 0
request = function()
  at = at % {groups} + 1
  return wrk.format(nil, nil, nil, (body:gsub("{group}", "group-" .. at):gsub("{topic}", "topic-" .. at)))
end
"""


class Closed(NamedTuple):
    """One closed-loop run: requests per second, the 99th percentile in milliseconds, answers that were not 2xx."""

    rate: float
    p99_ms: float
    refused: int


class Hey(NamedTuple):
    """The results of ``hey``: answers by status, requests without an answer, the slowest answer in seconds."""

    statuses: Counter[int]
    errors: int
    slowest_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place = Path(directory)
        (place / "body.json").write_bytes(BODY)
        print(f"body {len(BODY)} bytes, {CONNECTIONS} connections, {os.cpu_count()} cores, median of {asked.rounds}")
        throughput(place, asked.seconds, asked.rounds, kept=True)
        throughput(place, asked.seconds, asked.rounds, kept=False)
        many_groups(place, asked.seconds, asked.rounds)
        herd(place)


def throughput(place: Path, seconds: int, rounds: int, *, kept: bool) -> None:
    """Compare one worker, two workers, the empty endpoint and the first Karrot, in turn in each round."""
    print(f"{CONNECTIONS} kept connections" if kept else f"a new connection per event, {CONNECTIONS} at a time")
    script = "" if kept else _CLOSE
    with (
        karrot(place, "1") as one,
        karrot(place, "2") as two,
        run_baseline(place, "empty", "-k", "gthread", "--threads", "16") as empty,
        run_baseline(place, "first_karrot", "-w", "4") as first,
    ):
        ports = {"one": one.port, "two": two.port, "empty": empty, "first": first}
        cpu = {"one": 0.0, "two": 0.0}
        results: dict[str, list[Closed]] = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                service = {"one": one, "two": two}.get(name)
                before_s = cpu_of(service) if service else 0.0
                results[name].append(wrk(place, port, seconds, script))
                if service:
                    cpu[name] += cpu_of(service) - before_s
    for name in ("one", "two"):
        events = seconds * sum(result.rate for result in results[name])
        told(
            f"  {name} worker{'s' if name == 'two' else ''}, durable",
            statistics.median(result.rate for result in results[name]),
            f"events/s, p99 {statistics.median(result.p99_ms for result in results[name]):.0f} ms, "
            f"{cpu[name] / events * 1e6:.0f} µs of CPU per event",
        )
    for over, under, goal in (("one", "empty", 2.0), ("two", "one", 1.2), ("two", "first", 1.3)):
        ratios = [a.rate / b.rate for a, b in zip(results[over], results[under], strict=True)]
        rate = statistics.median(result.rate for result in results[under])
        told(
            f"  {over} : {under} ({rate:,.0f}/s)",
            statistics.median(ratios),
            f"median, {min(ratios):.2f} to {max(ratios):.2f}; "
            f"{sum(ratio >= goal for ratio in ratios)} of {rounds} rounds reach {goal}",
        )


def cpu_of(service: Service) -> float:
    """Return the seconds of CPU time that all processes of a service have taken."""
    stats = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in [service.pid, *service.workers()]
    ]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def many_groups(place: Path, seconds: int, rounds: int) -> None:
    """Compare events of many groups, each with its own topic, with events of one group."""
    result = json.loads(BODY)["Event"]["Result"]
    script = _POST_MANY.format(groups=GROUPS, group=result["group"], topic=result["maxlag"]["topic"])
    with karrot(place, "1") as service:
        wrk(place, service.port, seconds, script=script)  # so that every group is known
        pairs = [
            (wrk(place, service.port, seconds), wrk(place, service.port, seconds, script=script)) for _ in range(rounds)
        ]
    told(
        f"{GROUPS:,} groups and topics",
        statistics.median(many.rate for _, many in pairs),
        f"events/s; {statistics.median(many.rate / one.rate for one, many in pairs):.2f} times one group",
    )


def herd(place: Path, size: int = 2000) -> None:
    """Simulate Burrow's failover: post every group at once, each on its own connection."""
    with karrot(place, "2") as service:
        seen = hey(place, service.port, "-n", str(size), "-c", str(size), "-disable-keepalive")
    told(
        "herd of 2,000 connections",
        seen.slowest_s,
        f"s for the slowest (under 2); {dict(seen.statuses)}, {seen.errors} errors",
    )


@contextmanager
def karrot(place: Path, workers: str) -> Iterator[Service]:
    """Start the service on a new directory."""
    directory = Path(tempfile.mkdtemp(dir=place)) / "data"
    with Service(directory, workers=workers, threads="16", log="WARNING") as service:
        yield service


def wrk(place: Path, port: int, seconds: int, script: str = "") -> Closed:
    """Run a closed loop: each connection sends again when it has its answer."""
    file = place / "post.lua"
    file.write_text(_POST.format(place=place) + script)
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(file)]
    said = command_output([*command, f"http://127.0.0.1:{port}/burrow"])
    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()  # type: ignore[union-attr]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    return Closed(
        float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]),  # type: ignore[index]
        float(value) * {"us": 0.001, "ms": 1, "s": 1000}[unit],
        int(refused[1]) if refused else 0,
    )


def hey(place: Path, port: int, *options: str) -> Hey:
    """Send all requests at once."""
    command = ["hey", "-m", "POST", "-T", "application/json", "-D", str(place / "body.json"), "-t", "10", *options]
    said = command_output([*command, f"http://127.0.0.1:{port}/burrow"])
    statuses = Counter({int(code): int(count) for code, count in re.findall(r"\[(\d{3})\]\s+(\d+) responses", said)})
    errors = said.partition("Error distribution:")[2]
    return Hey(
        statuses,
        sum(map(int, re.findall(r"^\s+\[(\d+)\]", errors, re.MULTILINE))),
        float((re.search(r"Slowest:\s+([\d.]+)", said) or ["", "nan"])[1]),
    )


def told(what: str, value: float, rest: str) -> None:
    print(f"{what}: {value:,.2f} {rest}", flush=True)


if __name__ == "__main__":
    main()
