"""Posts hundreds of thousands of malformed bodies and new group names to the real service.

PYTHONPATH=tests python benchmarks/hostile.py [--bodies 100000] [--names 1000000] [--seed 1]

First it posts random bodies. The only 5xx answer is 503, no traceback is logged, the counters match the answers
exactly, and after each thousand ``/metrics`` parses in both formats; if there is a real Prometheus, it scrapes during
the run. Then it posts new group names at full speed with the default bounds. Answers are 202 or 503, memory stays
bounded, and each name is shown, expired or counted as dropped. The exit code is 1 if a promise was broken.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

from support.burrow.malformed_bodies import ALLOWED_STATUSES, malformed_bodies
from support.prometheus.prometheus_server import Prometheus, prometheus_binary
from support.service.bulk_posts import assert_metrics_parse, post_all, post_new_groups, private_memory_bytes
from support.service.karrot_service import Service
from support.waiting import wait_for

TOGETHER = 1_000
SHOWN_EVERY = 10
MOST_CONSUMERS = 50_000
ROUND = 100_000
PARSED_EVERY = 500_000  # over a minute for each format, all of it the parsers'
GROWTH_BYTES = 512 << 20
ACCEPTED = "karrot_events_accepted_total"
REJECTED = "karrot_events_rejected_total"
SHOWN = "karrot_consumers"
BECAME = (SHOWN, "karrot_consumers_expired_total", "karrot_series_dropped_total")


def post_bodies(directory: Path, total: int, seed: int) -> Iterator[str]:
    """Post random bodies, a thousand at a time; yield each broken promise."""
    made = malformed_bodies(Random(seed))
    answers = Counter[tuple[int, str]]()
    service = Service(directory, max_consumers="1000", stale_after="5s", partition_metrics="true", topic_metrics="true")
    with ExitStack() as stack:
        stack.enter_context(service)
        wait_for(lambda: len(service.workers()) == 2)
        workers = service.workers()
        binary = prometheus_binary()
        prometheus = binary and stack.enter_context(
            Prometheus(binary, directory.with_name("prometheus"), service.port, interval_s=5)
        )
        for done in range(0, total, TOGETHER):
            answers += post_all(service, islice(made, min(TOGETHER, total - done)))
            assert_metrics_parse(service)
            if (done // TOGETHER + 1) % SHOWN_EVERY == 0:
                print(f"{answers.total()} bodies: {dict(answers.most_common())}", flush=True)
        if prometheus:
            scrapes, good = (prometheus.number(f"{what}_over_time(up[1d])") for what in ("count", "sum"))
            print(f"a real Prometheus scraped {scrapes:g} times")
            if good != scrapes:
                yield f"only {good} scrapes by Prometheus succeeded"
        yield from miscounted(service, answers)
        if service.workers() != workers:
            yield f"the workers were {workers} and are {service.workers()}"
    if others := {status for status, _ in answers} - ALLOWED_STATUSES:
        yield f"answers {others}"
    if b"Traceback" in service.said.read_bytes():
        yield f"a traceback in {service.said}"


def miscounted(service: Service, answers: Counter[tuple[int, str]]) -> Iterator[str]:
    """Yield differences between the service's counters and the answers. A refusal is counted with the next commit."""
    wanted = {code: times for (status, code), times in answers.items() if status != 202}
    wait_for(lambda: sum(service.metric(REJECTED, code=code) or 0 for code in wanted) >= sum(wanted.values()))
    counted = {code: int(service.metric(REJECTED, code=code) or 0) for code in wanted}
    if counted != wanted:
        yield f"refusals counted {counted}, answered {wanted}"
    if (accepted := service.metric(ACCEPTED, source="webhook")) != answers[202, ""]:
        yield f"events counted {accepted}, answered {answers[202, '']}"


def post_names(directory: Path, total: int) -> Iterator[str]:
    """Post new names; yield each broken promise."""
    with Service(directory) as service:
        before = private_memory_bytes(service)
        answers = Counter[tuple[int, str]]()
        for first in range(0, total, ROUND):
            started = time.monotonic()
            round_answers = post_new_groups(service, range(first, min(first + ROUND, total)))
            took = time.monotonic() - started
            answers += round_answers
            if answers.total() % PARSED_EVERY == 0 or answers.total() == total:
                assert_metrics_parse(service)
            grown = private_memory_bytes(service) - before
            shown = totals(service, SHOWN)[SHOWN]
            print(
                f"{answers.total()} names: {dict(answers)}, {round_answers.total() / took:.0f}/s, {shown} shown, "
                f"workers grown by {grown >> 20} MB, peak {peak(service) >> 20} MB, log {log_bytes(service) >> 20} MB",
                flush=True,
            )
            if {status for status, _ in answers} - {202, 503}:
                yield f"answers {answers}"
            if shown > MOST_CONSUMERS:
                yield f"{shown} groups are shown"
            if grown > GROWTH_BYTES:
                yield f"the workers grew by {grown >> 20} MB"
            yield from unaccounted(service, answers[202, ""])
    if b"Traceback" in service.said.read_bytes():
        yield f"a traceback in {service.said}"


def unaccounted(service: Service, accepted: int) -> Iterator[str]:
    """Count accepted names that are not shown, expired or dropped. Some are counted with the next commit."""
    try:
        wait_for(lambda: sum(totals(service, *BECAME).values()) == accepted, 60)
    except AssertionError:
        yield f"accepted {accepted}, but {totals(service, *BECAME)}"
    if (counted := totals(service, ACCEPTED)[ACCEPTED]) != accepted:
        yield f"events counted {counted}, answered {accepted}"


def totals(service: Service, *names: str) -> dict[str, int]:
    """Return the sum of the samples of each name, from one scrape of only these names."""
    found = dict.fromkeys(names, 0)
    text = service.get("/metrics?" + urlencode([("name[]", name) for name in names])).body.decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += int(sample.value)
    return found


def peak(service: Service) -> int:
    """Return the largest resident memory that any worker ever had, in bytes."""
    statuses = [Path(f"/proc/{pid}/status").read_text().splitlines() for pid in service.workers()]
    return max(int(line.split()[1]) << 10 for status in statuses for line in status if line.startswith("VmHWM"))


def log_bytes(service: Service) -> int:
    """Return the bytes that the log takes on disk."""
    return sum(file.stat().st_size for file in service.directory.glob("events.db*"))


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parsed()
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="karrot-hostile-") as scratch:
        if arguments.bodies:
            broken += post_bodies(Path(scratch, "bodies"), arguments.bodies, arguments.seed)
        if arguments.names:
            broken += post_names(Path(scratch, "names"), arguments.names)
    for promise in broken:
        print(f"BROKEN: {promise}")
    sys.exit(1 if broken else 0)
