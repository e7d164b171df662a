"""Kills the service under load: every acknowledged event must be stored once, and another worker must lead soon.

PYTHONPATH=tests python benchmarks/crash.py [--kills 20] [--kills-all 20] [--reloads 5] [--threads 8] [--pause 1]
    [--seed 1]

The exit code is 1 if a promise was broken, or if the service did not come back.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import apsw
from harness.posting_process import AnswerCounts, PostingProcess

from support.service.karrot_service import Service
from support.waiting import wait_for

LEADS_WITHIN_S = 2.0
STOPS_WITHIN_S = 10.0
REPORTED = re.compile(rb'^\{"event_id":"[^"]+-(\d+)".*?"consumer":"([^"]+)"', re.MULTILINE)


class Place(NamedTuple):
    """The reporter's cursor, and the end of the log."""

    cursor: int
    last: int


class Trial:
    """A service under load, and the findings about it."""

    def __init__(self, service: Service, poster: PostingProcess, rng: Random, pause_s: float) -> None:
        self.service = service
        self.poster = poster
        self.rng = rng
        self.pause_s = pause_s
        self.places: list[Place] = []

    def at_any_moment(self) -> None:
        """Keep the load for a random time."""
        before = self.poster.tallies.accepted
        time.sleep(self.rng.uniform(0.05, self.pause_s))
        wait_for(lambda: self.poster.tallies.accepted > before, 30)

    def leader(self) -> int | None:
        """Return the process that holds ``leader.lock``."""
        inode = (self.service.directory / "leader.lock").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return int(fields[4])
        return None

    def kill_a_worker(self, *, leading: bool) -> float:
        """Kill the worker that leads, or one that does not; return the seconds until another one leads."""
        wait_for(lambda: len(self.service.workers()) == 2 and self.leader() in self.service.workers())
        self.at_any_moment()
        leader = self.leader()
        victim = leader if leading and leader else next(pid for pid in self.service.workers() if pid != leader)
        died = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: self.leader() not in (None, victim))
        return time.monotonic() - died

    def kill_all(self) -> float:
        """Kill the process group, check its data, start again; return the seconds until it is ready."""
        self.at_any_moment()
        self.service.kill()
        self.places.append(place(self.service.directory))
        started = time.monotonic()
        self.service.start()
        return time.monotonic() - started

    def reload(self) -> float:
        """Send SIGHUP; return the seconds until every worker is new."""
        self.at_any_moment()
        old = set(self.service.workers())
        started = time.monotonic()
        os.kill(self.service.pid, signal.SIGHUP)
        wait_for(lambda: len(self.service.workers()) == 2 and not old & set(self.service.workers()), 30)
        return time.monotonic() - started


def place(directory: Path) -> Place:
    """Read the log without writing, because the next start must recover it after a kill."""
    connection = apsw.Connection(str(directory / "events.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        cursor = connection.execute("SELECT seq FROM reporters WHERE name = 'stdout'").get
        last = connection.execute("SELECT max(seq) FROM events").get
    finally:
        connection.close()
    return Place(cursor or 0, last or 0)


def integrity(directory: Path) -> str:
    """Return the result of SQLite's integrity check."""
    connection = apsw.Connection(str(directory / "events.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return str(connection.pragma("integrity_check"))
    finally:
        connection.close()


def shown(what: str, seconds: list[float]) -> None:
    """Print the median and the worst value."""
    if seconds:
        print(f"{what}: median {sorted(seconds)[len(seconds) // 2]:.2f} s, worst {max(seconds):.2f} s")


def told(phase: str, before: AnswerCounts, after: AnswerCounts) -> None:
    """Print the answers to clients."""
    accepted, refused, other, broken = (new - old for new, old in zip(after, before, strict=True))
    print(f"  {phase}: {accepted} answers 202, {refused} 503, {other} others, {broken} connections broken or refused")


def run(arguments: argparse.Namespace, directory: Path) -> Iterator[str]:
    """Run all trials; yield each broken promise."""
    (directory / "acknowledged").mkdir()
    # No event may be dropped for its age or for the size of the log.
    service = Service(directory / "data", reporters="prometheus,stdout", max_log_bytes="16GiB")
    with (
        service,
        PostingProcess(service.port, directory=directory / "acknowledged", threads=arguments.threads) as poster,
    ):
        trial = Trial(service, poster, Random(arguments.seed), arguments.pause)
        wait_for(lambda: poster.tallies.accepted > 0)
        marks = [AnswerCounts(0, 0, 0, 0)]
        leads = [trial.kill_a_worker(leading=turn % 2 == 0) for turn in range(arguments.kills)]
        marks.append(poster.tallies)
        told(f"{arguments.kills} kills of one worker", *marks[-2:])
        shown("  another worker leads after", leads[::2])
        ready = [trial.kill_all() for _ in range(arguments.kills_all)]
        marks.append(poster.tallies)
        told(f"{arguments.kills_all} kills of all", *marks[-2:])
        shown("  started and ready after", ready)
        reloads = [trial.reload() for _ in range(arguments.reloads)]
        trial.at_any_moment()
        marks.append(poster.tallies)
        told(f"{arguments.reloads} reloads", *marks[-2:])
        shown("  all workers new after", reloads)
        reload_failures = marks[-1].broken - marks[-2].broken
        stopped = time.monotonic()
        code = service.stop(30)
        stopped = time.monotonic() - stopped
        print(f"  SIGTERM under load: exit code {code} after {stopped:.2f} s")
    trial.places.append(place(service.directory))
    if (slowest := max(leads, default=0)) > LEADS_WITHIN_S:
        yield f"nobody led for {slowest:.2f} s"
    if reload_failures:
        yield f"{reload_failures} connections broke in reloads"
    if code or stopped > STOPS_WITHIN_S:
        yield f"SIGTERM ended with {code} after {stopped:.1f} s"
    if poster.tallies.other:
        yield f"{poster.tallies.other} answers were neither 202 nor 503"
    yield from judged(service, poster, trial.places)


def judged(service: Service, poster: PostingProcess, places: list[Place]) -> Iterator[str]:
    """Compare the acknowledged events with the log and with the reported events."""
    acknowledged = poster.acknowledged()
    stored = service.stored_consumers()
    missing = acknowledged - stored.keys()
    twice = [name for name, times in stored.items() if times > 1]
    print(f"acknowledged {len(acknowledged)}, stored {stored.total()}, missing {len(missing)}, twice {len(twice)}")
    if missing or twice:
        yield f"missing {sorted(missing)[:5]}, twice {twice[:5]}"
    ahead = [each for each in places if each.cursor > each.last]
    least = min(each.last - each.cursor for each in places)
    print(f"cursor against the log after {len(places)} ends: ahead {len(ahead)} times, at best {least} behind")
    if ahead:
        yield f"the cursor was ahead of the log: {ahead}"
    reported = Counter(int(seq) for seq, _ in REPORTED.findall(service.said.read_bytes()))
    skipped = set(range(1, places[-1].cursor + 1)) - reported.keys()
    again = sum(times - 1 for times in reported.values())
    print(
        f"the reporter was handed {len(reported)} events, {again} of them again; below its cursor {len(skipped)} never"
    )
    if skipped:
        yield f"never reported, but below the cursor: {sorted(skipped)[:5]}"
    if (verdict := integrity(service.directory)) != "ok":
        yield f"integrity_check: {verdict}"


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of one worker; every other time of the one that leads")
    parser.add_argument("--kills-all", type=int, default=20, help="of the whole process group, with a restart")
    parser.add_argument("--reloads", type=int, default=5)
    parser.add_argument("--threads", type=int, default=8, help="connections that post")
    parser.add_argument("--pause", type=float, default=1.0, help="the longest time of load before a kill, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        broken = list(run(parsed(), Path(scratch)))
    for promise in broken:
        print(f"BROKEN: {promise}")
    sys.exit(1 if broken else 0)
