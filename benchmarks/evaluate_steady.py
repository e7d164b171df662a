"""Measures whether `karrot pipeline evaluate` keeps up with commits that arrive in real time, and how fast it restarts.

PYTHONPATH=tests python benchmarks/evaluate_steady.py [--rate 50000] [--partitions 24000] [--minutes 10] [--memory 3g]

A file with the commits of the last ten seconds arrives every ten seconds, and one with log ends. Every minute, all
groups are judged, and the verdicts go to /dev/null. The CPU time is that of the command, without the time to make the
records. At the end, the command is killed, and the time until the first verdict of its next start is measured.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from evaluate_batches import state_bytes
from harness.offset_record_files import CommitRecords, write
from harness.stopwatch import process_tree

from support.service.free_ports import free_port

_PART_S: Final = 10
_LOOK_S: Final = 1.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Batch(NamedTuple):
    """A batch as its metrics show it: its time, when it was seen, and the seconds that it took."""

    at_s: float
    seen_s: float
    seconds: float

    @property
    def behind_s(self) -> float:
        """How old the newest commit was when the verdicts were delivered."""
        return self.seen_s - self.at_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=50_000, help="commits in a second")
    parser.add_argument("--partitions", type=int, default=24_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--memory", default="3g")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place, ended = Path(directory), Event()
        made = CommitRecords(asked.partitions)
        _feed_once(made, place, asked.rate, time.time())
        feeder = Thread(target=feed, args=(made, place, asked.rate, ended), daemon=True)
        feeder.start()
        process, port = start(place, asked.memory)
        cpu, began = cpu_of_children(), time.monotonic()
        batches = [*seen_batches(port, until=began + 60 * asked.minutes)]
        spent, wall = cpu_of_children() - cpu, time.monotonic() - began
        report(asked.rate, asked.partitions, batches, spent / wall, place)
        process.kill()
        process.wait()
        restarted = time.monotonic()
        process, port = start(place, asked.memory)
        first = next(seen_batches(port, until=restarted + 600))
        print(f"from the start after a kill to the first verdicts: {time.monotonic() - restarted:.0f} s; {first}")
        ended.set()
        process.kill()
        process.wait()


def start(place: Path, memory: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the command. Return the process, and the port of its metrics."""
    port = free_port()
    options = [
        "--source=parquet",
        f"--input={place / 'records'}",
        f"--ends-input={place / 'ends'}",
        "--cluster=prod-eu",
    ]
    options += [f"--tables={place / 'tables'}", f"--checkpoint={place / 'checkpoint'}", f"--metrics-port={port}"]
    options += ["--master=local[2]", f"--conf=spark.driver.memory={memory}"]
    command = [sys.executable, "-m", "karrot", "pipeline", "evaluate", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL), port


def feed(made: CommitRecords, place: Path, rate: int, ended: Event) -> None:
    """Write a file every ten seconds."""
    due = time.time() + _PART_S
    while not ended.wait(max(0.0, due - time.time())):
        _feed_once(made, place, rate, due)
        due += _PART_S


def _feed_once(made: CommitRecords, place: Path, rate: int, now: float) -> None:
    began_ms, ended_ms = round(1000 * (now - _PART_S)), round(1000 * now)
    write(made.ends(began_ms), place / "ends", began_ms)
    write(made.take(rate * _PART_S, began_ms, ended_ms), place / "records", ended_ms)


def seen_batches(port: int, until: float) -> Iterator[Batch]:
    """Yield each new batch until a time of the monotonic clock."""
    known = 0.0
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        found = metrics(port)
        at_s = found.get("karrot_evaluate_last_batch_timestamp_seconds", 0.0)
        if found.get("karrot_evaluate_batches_total") and at_s != known:
            known = at_s
            yield Batch(at_s, time.time(), found["karrot_evaluate_batch_seconds"])


def metrics(port: int) -> dict[str, float]:
    """The values of the metrics without further labels; empty before the port is open."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except (URLError, ConnectionError):
        return {}
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("karrot_")}


def report(rate: int, partitions: int, batches: list[Batch], cores: float, place: Path) -> None:
    """Print the figures."""
    seconds = sorted(each.seconds for each in batches[1:])
    half = len(batches) // 2
    behind = [f"{statistics.mean(each.behind_s for each in part):.0f}" for part in (batches[1:half], batches[half:])]
    slowest = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    print(
        f"{rate:,} commits/s of {partitions:,} partitions: {len(batches)} batches, the first took "
        f"{batches[0].seconds:.0f} s, the others {statistics.median(seconds):.0f} s (median) and {slowest:.0f} s (99th "
        f"percentile); {cores:.2f} cores; behind by {behind[0]} s in the first half and {behind[1]} s in the second; "
        f"state {state_bytes(place) / partitions:.0f} bytes a partition; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def cpu_of_children() -> float:
    """The CPU seconds of all child processes."""
    return (
        sum(sum(map(int, stat[11:15])) for pid, stat in process_tree().items() if stat and pid != os.getpid()) / _TICKS
    )


if __name__ == "__main__":
    main()
