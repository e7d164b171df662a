"""Measures events stored per second; the yardstick is an empty Flask endpoint under the same gunicorn settings.

PYTHONPATH=tests python benchmarks/ingest.py [--seconds 8] [--rounds 3]

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
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place = Path(directory)
        (place / "body.json").write_bytes(BODY)
        print(f"body {len(BODY)} bytes, {CONNECTIONS} connections, {os.cpu_count()} cores, median of {asked.rounds}")
        one = throughput(place, asked.seconds, asked.rounds)
        more_workers(place, asked.seconds, asked.rounds, one)
        many_groups(place, asked.seconds, asked.rounds)
        herd(place)


def throughput(place: Path, seconds: int, rounds: int) -> float:
    """Compare one worker with the empty endpoint in the same gunicorn worker class; return events per second."""
    with karrot(place, "1") as service, run_baseline(place, "empty", "-k", "gthread", "--threads", "16") as port:
        pairs = [(wrk(place, port, seconds), wrk(place, service.port, seconds)) for _ in range(rounds)]
    ratio = statistics.median(ours.rate / theirs.rate for theirs, ours in pairs)
    told(
        "one worker, durable",
        statistics.median(ours.rate for _, ours in pairs),
        f"events/s, p99 {max(ours.p99_ms for _, ours in pairs):.0f} ms; empty Flask endpoint "
        f"{statistics.median(theirs.rate for theirs, _ in pairs):.0f}; ratio {ratio:.2f} (reach 0.7, aim at 0.85)",
    )
    return statistics.median(ours.rate for _, ours in pairs)


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


def more_workers(place: Path, seconds: int, rounds: int, one: float) -> None:
    """Compare two workers with one, and with the first Karrot."""
    with karrot(place, "2") as service, run_baseline(place, "first_karrot", "-w", "4") as port:
        pairs = [(wrk(place, port, seconds), wrk(place, service.port, seconds)) for _ in range(rounds)]
    two = statistics.median(ours.rate for _, ours in pairs)
    first = statistics.median(theirs.rate for theirs, _ in pairs)
    told(
        "two workers, durable",
        two,
        f"events/s; {two / one:.2f} times one worker (reach 1.5); "
        f"stand-in for the first Karrot, not durable: {first:.0f}",
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
