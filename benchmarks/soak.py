"""Runs the service under load for hours: memory must stay flat, resources bounded, and no event may be lost.

PYTHONPATH=tests python benchmarks/soak.py [--hours 8 | --minutes 3] [--rate 200] [--out build/soak.jsonl] [--kafka]

With ``--kafka``, the service also watches a real broker, and ``karrot pipeline offsets`` follows it with both judges.

Every few minutes the younger of two workers is killed, so that the older one shows its memory over a long time;
sometimes a reload replaces both. Each sample is written as a line of JSON. The exit code is 1 if a bound was broken.
The slopes of memory leave out the first tenth, and are checked only for runs from `WORTH_JUDGING_H` on, because every
process grows just after its start.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import LinearRegression, linear_regression
from typing import NamedTuple

from harness.posting_process import PostingProcess
from harness.soak_beside_kafka import broker
from harness.stopwatch import process_tree

from support.service.karrot_service import Service
from support.waiting import wait_for

SAMPLE_S = 15.0
WORTH_JUDGING_H = 2.0
RSS_MB_PER_HOUR = 1.0
WAL_MB = 64.0
MORE_THREADS = 4
MORE_FDS = 32
PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """The resources of one process."""

    rss_mb: float
    threads: int
    fds: int


class Sample(NamedTuple):
    """All processes at one time, ``hours`` after the start, with the oldest worker separately."""

    hours: float
    processes: int
    rss_mb: float
    threads: int
    fds: int
    wal_mb: float
    scrape_s: float
    accepted: int
    refused: int
    broken: int
    oldest: int
    oldest_rss_mb: float
    others_mb: Mapping[str, float]
    """The memory of the other processes: the Kafka client of ``watch``, and the Python and JVM of the job."""


class Disturbance(NamedTuple):
    """An action on the service that is repeated at an interval."""

    name: str
    every_s: float

    def due(self, since_s: float, until_s: float) -> bool:
        """Return whether it is due between two times after the start."""
        return bool(self.every_s) and int(until_s // self.every_s) > int(since_s // self.every_s)


def process(pid: int) -> Process:
    """Read a process's resources from ``/proc``."""
    directory = Path(f"/proc/{pid}")
    resident = int((directory / "statm").read_text().split()[1])
    return Process(resident * PAGE / 1e6, entries(directory / "task"), entries(directory / "fd"))


def entries(directory: Path) -> int:
    """Return the number of entries."""
    return sum(1 for _ in directory.iterdir())


def oldest(pids: Sequence[int]) -> int:
    """Return the process that started first."""
    return min(pids, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))


def others(service: Service, job: int | None, measured: Collection[int]) -> dict[str, float]:
    """The resident MB of all other processes of the service and of the job."""
    found = dict[str, float]()
    for root, kind in ((service.pid, "kafka client"), (job, "job")):
        for pid in process_tree(root) if root else ():
            if pid not in measured and (directory := Path(f"/proc/{pid}")).exists():
                name = f"{kind} {(directory / 'comm').read_text().strip()}"
                found[name] = found.get(name, 0.0) + process(pid).rss_mb
    return found


def sample(service: Service, poster: PostingProcess, started: float, job: int | None) -> Sample:
    """Scrape once, and measure all processes after it."""
    asked = time.monotonic()
    if service.get("/metrics").status != 200:
        raise RuntimeError("a scrape was refused")
    scrape_s = time.monotonic() - asked
    first = oldest(service.workers())
    each = {pid: process(pid) for pid in (service.pid, *service.workers())}
    wal = service.directory / "events.db-wal"
    accepted, refused, other, broken = poster.tallies
    return Sample(
        hours=(time.monotonic() - started) / 3600,
        processes=len(each),
        rss_mb=sum(one.rss_mb for one in each.values()),
        threads=sum(one.threads for one in each.values()),
        fds=sum(one.fds for one in each.values()),
        wal_mb=wal.stat().st_size / 1e6,
        scrape_s=scrape_s,
        accepted=accepted,
        refused=refused + other,
        broken=broken,
        oldest=first,
        oldest_rss_mb=each[first].rss_mb,
        others_mb=others(service, job, each),
    )


def kill_the_younger(service: Service) -> None:
    """Kill the younger worker, and wait until there are two again."""
    first = oldest(service.workers())
    victim = next(pid for pid in service.workers() if pid != first)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: victim not in service.workers() and len(service.workers()) == 2)


def reload(service: Service) -> None:
    """Replace every worker."""
    old = set(service.workers())
    os.kill(service.pid, signal.SIGHUP)
    wait_for(lambda: len(service.workers()) == 2 and not old & set(service.workers()), 60)


def watch(service: Service, poster: PostingProcess, arguments: argparse.Namespace, job: int | None) -> Iterator[Sample]:
    """Yield a sample every `SAMPLE_S`, with disturbances in between."""
    kill = Disturbance("kill", arguments.kill_minutes * 60)
    again = Disturbance("reload", arguments.reload_minutes * 60)
    started = time.monotonic()
    for turn in range(1, int(arguments.hours * 3600 / SAMPLE_S) + 1):
        time.sleep(max(0.0, started + turn * SAMPLE_S - time.monotonic()))
        yield sample(service, poster, started, job)
        since, until = turn * SAMPLE_S, (turn + 1) * SAMPLE_S
        if again.due(since, until):
            reload(service)
        elif kill.due(since, until):
            kill_the_younger(service)


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Return the slope per hour, by least squares; 0 if there are too few samples."""
    if len(samples) < 3:
        return 0.0
    line: LinearRegression = linear_regression([at for at, _ in samples], [value for _, value in samples])
    return line.slope


def longest_life(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """Return the memory of the longest-living worker, without the first tenth of its life."""
    lives: dict[int, list[tuple[float, float]]] = {}
    for each in samples:
        lives.setdefault(each.oldest, []).append((each.hours, each.oldest_rss_mb))
    longest = max(lives.values(), key=len)
    return longest[len(longest) // 10 :]


class Findings:
    """The findings from a series of samples; ``settled`` leaves out times just after a start or a kill."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.settled = [each for each in samples[len(samples) // 10 :] if each.processes == 3]
        self.life = longest_life(samples)
        self.total_slope = slope([(each.hours, each.rss_mb) for each in self.settled])
        self.life_slope = slope(self.life)
        self.wal_mb = max(each.wal_mb for each in samples)
        self.worth_judging = self.settled[-1].hours - self.settled[0].hours >= WORTH_JUDGING_H

    def tell(self) -> None:
        """Print all findings."""
        first, last = self.settled[0], self.settled[-1]
        print(
            f"{len(self.samples)} samples over {last.hours:.2f} h, {last.accepted} answers 202, {last.refused} others"
        )
        print(f"{last.broken} connections broken; slowest scrape {max(each.scrape_s for each in self.samples):.2f} s")
        print(f"resident memory: {first.rss_mb:.0f} to {last.rss_mb:.0f} MB in all, {self.total_slope:+.2f} MB/h")
        hours = self.life[-1][0] - self.life[0][0]
        print(f"of the worker that lived longest, over {hours:.2f} h: {self.life_slope:+.2f} MB/h")
        for name in ("threads", "fds"):
            values = [(each.hours, float(getattr(each, name))) for each in self.settled]
            least, most = min(value for _, value in values), max(value for _, value in values)
            print(f"{name}: {least:.0f} to {most:.0f}, {slope(values):+.2f}/h")
        for name in sorted(set.intersection(*(set(each.others_mb) for each in self.settled))):
            values = [(each.hours, each.others_mb[name]) for each in self.settled]
            print(f"{name}: {values[0][1]:.0f} to {values[-1][1]:.0f} MB, {slope(values):+.2f} MB/h")
        print(f"write-ahead log: at most {self.wal_mb:.1f} MB")
        if not self.worth_judging:
            print(f"the slopes of memory are not judged under {WORTH_JUDGING_H:g} h")

    def broken(self, rss_bound: float) -> Iterator[str]:
        """Yield each broken bound."""
        last = self.settled[-1]
        steepest = max(self.total_slope, self.life_slope)
        if self.worth_judging and steepest > rss_bound:
            yield f"memory grows by {steepest:.2f} MB/h, the bound is {rss_bound:g}"
        # A new worker starts some of its threads later, so the fewest say nothing.
        earlier = self.settled[: len(self.settled) // 2] or self.settled
        if last.threads > max(each.threads for each in earlier) + MORE_THREADS:
            yield f"{last.threads} threads at the end"
        if last.fds > max(each.fds for each in earlier) + MORE_FDS:
            yield f"{last.fds} descriptors at the end"
        if self.wal_mb > WAL_MB:
            yield "the write-ahead log went beyond its bound"
        if last.refused:
            yield f"{last.refused} answers were not 202"


def run(arguments: argparse.Namespace, directory: Path) -> Iterator[str]:
    """Run the load; yield each broken bound."""
    samples: list[Sample] = []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        kafka = stack.enter_context(broker(directory)) if arguments.kafka else None
        service = Service(directory / "data", reporters="prometheus,stdout")
        service.settings |= kafka.watch_settings if kafka else {}
        stack.enter_context(service)
        job = kafka.start_job() if kafka else None
        out = stack.enter_context(arguments.out.open("w"))
        with PostingProcess(service.port, rate=arguments.rate, groups=500) as poster:
            for each in watch(service, poster, arguments, job.pid if job else None):
                samples.append(each)
                out.write(json.dumps(each._asdict()) + "\n")
                out.flush()
                service.said.write_bytes(b"")  # the output of hours would fill the volume; the service appends
        counted = service.metric("karrot_events_accepted_total", source="webhook") or 0
        acknowledged = poster.tallies.accepted
        code = service.stop(30)
        if kafka and job:
            ended = job.exit_code
            wrong = kafka.commits_not_in_the_table(job)
            print(f"commits that the table of the job lacks or has twice: {wrong}")
            if wrong or ended is not None:
                yield f"{wrong} commits are lost or doubled; the job ended by itself with {ended}"
    print(f"acknowledged {acknowledged}, counted in the log {counted:.0f}")
    if counted < acknowledged:
        yield f"{acknowledged - counted:.0f} acknowledged events are not in the log"
    if code:
        yield f"SIGTERM ended with {code}"
    findings = Findings(samples)
    findings.tell()
    yield from findings.broken(arguments.rss_bound)


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, default=8.0)
    length.add_argument("--minutes", type=lambda text: float(text) / 60, dest="hours", help="instead of hours")
    parser.add_argument("--rate", type=float, default=200.0, help="events a second")
    parser.add_argument("--kill-minutes", type=float, default=5.0, help="between kills of the younger worker; 0: none")
    parser.add_argument("--reload-minutes", type=float, default=150.0, help="between reloads; 0: none")
    parser.add_argument("--rss-bound", type=float, default=RSS_MB_PER_HOUR, help="MB an hour")
    parser.add_argument("--out", type=Path, default=Path("build/soak.jsonl"), help="where each sample goes")
    parser.add_argument("--kafka", action="store_true", help="watch a real broker, and run the Kafka job beside it")
    return parser.parse_args()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        broken = list(run(parsed(), Path(scratch)))
    for bound in broken:
        print(f"BROKEN: {bound}")
    sys.exit(1 if broken else 0)
