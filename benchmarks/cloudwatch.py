"""Measures the CloudWatch reporter: time and calls of a flush, and whether its outage slows the webhook.

PYTHONPATH=tests python benchmarks/cloudwatch.py [--groups 10000] [--seconds 10] [--rounds 3] [--outage 30]

CloudWatch is the strict fake, in its own process. The exit code is 1 if there were too many calls. ``--seconds 0``
leaves out the incoming events, ``--outage 0`` the memory. The long form is ``--seconds 120 --rounds 1 --outage 600``.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

from harness.baseline_server import run_baseline
from harness.fake_cloudwatch_process import FakeCloudWatchProcess
from harness.periodic_work import PeriodicWork
from harness.stopwatch import wall_seconds
from open_loop import evenly, verdict
from soak import process

from karrot import logs
from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.eventlog.base import Cursor, GroupState
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import Unreported
from karrot.reporters.cloudwatch import build
from karrot.reporters.cloudwatch.boto_client import open_client
from karrot.reporters.cloudwatch.data import batches
from karrot.reporters.cloudwatch.group_data import data_of
from support.burrow.lag_events import make_event
from support.manual_clock import ManualClock
from support.reporters.cloudwatch_reporter_rig import CloudWatchRig, aws_environment
from support.reporters.injected_faults import HANG, INTERNAL_ERROR, THROTTLING, Fault
from support.reporters.reporter_context import make_context, options_of
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch
from support.service.karrot_service import Service
from support.service.open_loop import OpenLoopResult, percentile, send_open_loop

METRICS = "Lag,LagSeconds"
INTERVAL_S = 2
RATE = 300
SETTLE_S = 75
"""Longer than the longest wait after throttling."""
FLUSHES = 3
FEW = 1000
FAULTS: dict[str, Fault | None] = {"answering": None, "hanging": HANG, "500": INTERNAL_ERROR, "throttling": THROTTLING}
DATA_A_CALL, BYTES_A_CALL = 1000, 900_000


class Sizes(NamedTuple):
    """The options of the command line; times in seconds."""

    groups: int
    seconds: int
    rounds: int
    outage: int


def main() -> int:
    sizes = parsed()
    logs.configure("WARNING", sys.stdout)
    load, *_ = os.getloadavg()
    print(f"{sizes.groups:,} groups, {METRICS}; {os.cpu_count()} cores, load average before it {load:.1f}")
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory, FakeCloudWatchProcess() as far:
        place = Path(directory)
        os.environ.update(aws_environment(far.url))
        too_many = [*flush(far, sizes.groups, "team-service"), *flush(far, FEW, "ü" * 150)]
        print(f"{FEW:,} groups, one metric: {calls_in_a_minute()} calls a minute", flush=True)
        if sizes.seconds:
            first_karrot(place, far)
            ingest(place, far, sizes)
        if sizes.outage:
            memory(place, far, sizes)
    for each in too_many:
        print(f"BROKEN: {each}")
    return 1 if too_many else 0


def flush(far: FakeCloudWatchProcess, groups: int, prefix: str) -> Iterator[str]:
    """Compare full sends with the same data from the same client without Karrot; yield each broken promise."""
    clock = ManualClock(wall=SystemClock().wall_ms())
    log, settings = loaded(clock, groups, prefix), {"metrics": METRICS, "max_groups": str(groups)}
    took, spent = [], []
    for _ in range(1 + FLUSHES):  # the first send imports boto3
        far.forget()
        reporter = build(make_context("cloudwatch", settings, log=log, clock=clock))
        began = time.process_time()
        took.append(wall_seconds(partial(reporter.report, Unreported(log, Cursor(log.log_id, 0)))))
        spent.append(time.process_time() - began)
        reporter.close()
    calls = far.calls()
    data, size = sum(call.data for call in calls), sum(call.bytes for call in calls)
    fewest = max(ceil(data / DATA_A_CALL), ceil(size / BYTES_A_CALL))
    ours, plain = median(took[1:]), median(plainly(log.live()) for _ in range(FLUSHES))
    print(
        f"a flush of {data:,} data, {size / 1e6:.1f} MB: {ours:.2f} s (under 3 for 10,000 groups), with boto3 to load "
        f"{took[0]:.2f} s, {median(spent[1:]):.2f} s of processor time;\n  {len(calls)} calls (fewest: {fewest}); the "
        f"client alone, as fast as it can, {plain:.2f} s; ratio {ours / plain:.1f}",
        flush=True,
    )
    if data != 2 * groups + 1 or any(not call.kept for call in calls):
        yield f"{data:,} data of {groups:,} groups were sent"
    if len(calls) > fewest:
        yield f"{data:,} data took {len(calls)} calls, {fewest} would do"


def loaded(clock: ManualClock, groups: int, prefix: str) -> MemoryEventLog:
    """Return a log with an event of each group."""
    log = MemoryEventLog(clock)
    for number in range(groups):
        event = make_event(consumer=f"{prefix}-{number:06}", observed_at_ms=clock.wall)
        log.append(event, to_wire(event))
    return log


def plainly(states: Sequence[GroupState]) -> float:
    """Return the seconds for the same data in the same requests, one after the other."""
    options = options_of("cloudwatch", {"metrics": METRICS})
    data = [datum for state in states for datum in data_of(state, options).data]
    client = open_client(options, os.environ)
    requests = [[datum.wire() for datum in batch] for batch in batches(data, options.namespace)]

    def put() -> None:
        for request in requests:
            client.put_metric_data(Namespace=options.namespace, MetricData=request)

    try:
        return wall_seconds(put)
    finally:
        client.close()


def calls_in_a_minute() -> int:
    """Count the calls of the default reporter in a simulated minute with two events of each group."""
    clock = ManualClock(wall=SystemClock().wall_ms())
    with ScriptedCloudWatch(clock_ms=clock.wall_ms) as fake:
        before = dict(os.environ)
        os.environ.update(aws_environment(fake.url))
        rig = CloudWatchRig(fake, clock)
        rig.run(2)  # the first send is a second after the start
        for _ in range(2):
            for number in range(FEW):
                rig.tell(consumer=f"group-{number}")
            rig.run(30)
        os.environ.update(before)
        return len(fake.calls)


def first_karrot(place: Path, far: FakeCloudWatchProcess) -> None:
    """Measure the first Karrot's calls for a minute of posts, two per group, and their effect on the poster."""
    posts, request = 2 * FEW, partial(verdict, FEW)
    far.forget()
    with run_baseline(place, "first_karrot_cloudwatch", "-w", "4", "--graceful-timeout", "1") as port:
        healthy = send_open_loop(port, evenly(RATE, posts / RATE), request)
        first = len(far.calls())
        far.stand(HANG)
        hanging = send_open_loop(port, evenly(RATE, 3), request)
        far.clear()
    print(
        f"  the first Karrot's way {first}, with p99 {p99_ms(healthy):.0f} ms for the poster, and "
        f"{hanging.answers().get(202, 0)} of {3 * RATE} posts answered while CloudWatch hangs",
        flush=True,
    )


def ingest(place: Path, far: FakeCloudWatchProcess, sizes: Sizes) -> None:
    """Post at the same times with a healthy CloudWatch and in each kind of outage, in turns."""
    played: dict[str, list[OpenLoopResult]] = {name: [] for name in FAULTS}
    due, request = evenly(RATE, sizes.seconds), partial(verdict, sizes.groups)
    with karrot(place / "ingest", sizes) as service:
        send_open_loop(service.port, due, request)
        for _ in range(sizes.rounds):
            for name, fault in FAULTS.items():
                far.clear()
                if fault is None:
                    until(lambda: is_well(service))
                else:
                    far.stand(fault)
                played[name].append(send_open_loop(service.port, due, request))
    far.clear()
    print(f"{RATE} posts/s for {sizes.seconds} s, {sizes.rounds} times each, a flush every {INTERVAL_S} s")
    for name, each in played.items():
        told(name, each, played["answering"])


def told(name: str, played: Sequence[OpenLoopResult], healthy: Sequence[OpenLoopResult]) -> None:
    ratio = p99_ms(*played) / p99_ms(*healthy)
    answered = sum(each.answers().get(202, 0) for each in played)
    times = ", ".join(f"{p99_ms(each):.1f}" for each in played)
    print(
        f"  CloudWatch {name:11} p99 {times} ms, together {p99_ms(*played):.1f}; ratio {ratio:.2f} (at most 1.1); "
        f"202: {answered} of {sum(len(each.statuses) for each in played)}",
        flush=True,
    )


def memory(place: Path, far: FakeCloudWatchProcess, sizes: Sizes) -> None:
    """Measure the service's memory while all data wait, and the time until all data arrive afterwards."""
    request, pass_s = partial(verdict, sizes.groups), sizes.groups / RATE
    with karrot(place / "memory", sizes) as service:
        send_open_loop(service.port, evenly(RATE, pass_s), request)
        until(lambda: is_well(service))
        with Resident(service) as well:
            send_open_loop(service.port, evenly(RATE, sizes.outage), request)
        far.stand(INTERNAL_ERROR)
        send_open_loop(service.port, evenly(RATE, pass_s), request)
        far.forget()
        with Resident(service) as outage:
            send_open_loop(service.port, evenly(RATE, sizes.outage), request)
        expected = 2 * sizes.groups + 1
        far.clear()
        since = time.monotonic()
        until(lambda: arrived(far) >= expected)
        back_s = time.monotonic() - since
    print(
        f"{sizes.outage} s of outage with {expected:,} data owed: {outage.first:.0f} to {outage.last:.0f} MB resident, "
        f"{outage.slope:+.1f} MB a minute (flat);\n  as long before it {well.first:.0f} to {well.last:.0f} MB, "
        f"{well.slope:+.1f}; {arrived(far):,} arrived {back_s:.1f} s after its end",
        flush=True,
    )


class Resident(PeriodicWork):
    """Records the memory of the parent and its workers in MB every second."""

    def __init__(self, service: Service) -> None:
        super().__init__(self._look, 1)
        self._pids = (service.pid, *service.workers())
        self._seen: list[tuple[float, float]] = []

    def _look(self) -> None:
        self._seen.append((time.monotonic() / 60, sum(process(pid).rss_mb for pid in self._pids)))

    @property
    def first(self) -> float:
        return self._seen[0][1]

    @property
    def last(self) -> float:
        return self._seen[-1][1]

    @property
    def slope(self) -> float:
        """Return MB per minute, by least squares."""
        return linear_regression(*zip(*self._seen, strict=True)).slope


def karrot(directory: Path, sizes: Sizes) -> Service:
    """Return the service with the reporter on, not started yet."""
    directory.mkdir()
    return Service(
        directory / "data",
        threads="16",
        log="WARNING",
        reporters="prometheus,cloudwatch",
        cloudwatch_metrics=METRICS,
        cloudwatch_interval=f"{INTERVAL_S}s",
        cloudwatch_max_groups=str(sizes.groups),
    )


def is_well(service: Service) -> bool:
    """Return whether the reporter's last send succeeded."""
    states = {each["name"]: each["state"] for each in service.get("/api/v1/reporters").json["reporters"]}
    return bool(states["cloudwatch"] == "ok")


def arrived(far: FakeCloudWatchProcess) -> int:
    """Return the number of accepted data."""
    return sum(call.data for call in far.calls() if call.kept)


def until(condition: Callable[[], bool]) -> None:
    """Check a condition rarely, to disturb the measurement little, until it holds or the time is over."""
    deadline = time.monotonic() + SETTLE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.25)


def p99_ms(*played: OpenLoopResult) -> float:
    """Return the 99th percentile of all latencies together, in milliseconds."""
    return percentile([latency for each in played for latency in each.latencies], 99) * 1000


def parsed() -> Sizes:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=10, help="of each kind of outage, for the events that come in")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--outage", type=int, default=30, help="seconds of it, for the memory")
    return Sizes(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
