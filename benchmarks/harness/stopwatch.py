"""Measures wall time and CPU time, including the CPU time of child processes."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Duration(NamedTuple):
    """Seconds by the clock, and of CPU: on a busy machine these tell, and the clock does not."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} of CPU)"


def measure(run: Callable[[], object]) -> Duration:
    """What a run takes, that of Spark's JVM and of its Python workers included."""
    cpu = cpu_seconds()
    wall = wall_seconds(run)
    return Duration(wall, cpu_seconds() - cpu)


def wall_seconds(run: Callable[[], object]) -> float:
    """What a run takes by the clock."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def median_duration(several: Sequence[Duration]) -> Duration:
    """The middle of both."""
    return Duration(*(statistics.median(column) for column in zip(*several, strict=True)))


def cpu_seconds() -> float:
    """Of this process and all below it, those that ended too."""
    processes = {int(each.name): _stat(each) for each in Path("/proc").iterdir() if each.name.isdigit()}
    ours, found = {os.getpid()}, -1
    while found != len(ours):
        found = len(ours)
        ours |= {pid for pid, stat in processes.items() if stat and int(stat[1]) in ours}
    ticks = sum(sum(map(int, stat[11:15])) for pid in ours if (stat := processes.get(pid)))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(process: Path) -> list[str]:
    """The fields after the name: state, parent, … utime, stime, cutime, cstime."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
