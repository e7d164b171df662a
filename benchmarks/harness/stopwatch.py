"""Measures wall time and CPU time, including the CPU time of child processes."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Duration(NamedTuple):
    """Wall seconds and CPU seconds; on a busy machine only the CPU seconds are reliable."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} of CPU)"


def measure(run: Callable[[], object]) -> Duration:
    """Measure a run, including Spark's JVM and its Python workers."""
    cpu = cpu_seconds()
    wall = wall_seconds(run)
    return Duration(wall, cpu_seconds() - cpu)


def wall_seconds(run: Callable[[], object]) -> float:
    """Measure the wall time of a run."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def median_duration(several: Sequence[Duration]) -> Duration:
    """Return the median of both times."""
    return Duration(*(statistics.median(column) for column in zip(*several, strict=True)))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all its child processes, including ended ones."""
    ticks = sum(sum(map(int, stat[11:15])) for stat in process_tree().values() if stat)
    return ticks / os.sysconf("SC_CLK_TCK")


def process_tree(root: int | None = None) -> dict[int, list[str]]:
    """Return a process (default: this one) and its child processes: ``/proc/<pid>/stat`` after the name, as fields."""
    processes = {int(each.name): _stat(each) for each in Path("/proc").iterdir() if each.name.isdigit()}
    ours, found = {root or os.getpid()}, -1
    while found != len(ours):
        found = len(ours)
        ours |= {pid for pid, stat in processes.items() if stat and int(stat[1]) in ours}
    return {pid: stat for pid, stat in processes.items() if pid in ours}


def _stat(process: Path) -> list[str]:
    """Return the fields after the name: state, parent, … utime, stime, cutime, cstime."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
