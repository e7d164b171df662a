"""Measures the CPU seconds of a run by kind of thread: Spark's tasks, JIT compilers, driver, garbage collection.

A thread that ends takes its counters with it, so a sampler reads them every two seconds and keeps the last. What
a process used beyond that counts as the driver's, or Python's: the thread of a streaming query ends with the query.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

from harness.stopwatch import process_tree

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_EVERY_S: Final = 2.0
_WHOLE: Final = 0
"""Stands for all threads of a process, also those that have ended."""

_JVM: Final = {"Executor task": "tasks", "C1 ": "compilers", "C2 ": "compilers", "GC ": "GC", "G1 ": "GC", "VM ": "GC"}
"""The beginnings of the names of a JVM's threads. All other threads of the JVM are the driver's."""

KINDS: Final = ("tasks", "compilers", "driver", "GC", "python")
SERVERS: Final = "servers"


class CpuByThread(NamedTuple):
    """The wall seconds of a run, and its CPU seconds by kind of thread."""

    wall: float
    by_kind: Mapping[str, float]

    @property
    def cpu(self) -> float:
        """The CPU seconds of all kinds except the servers."""
        return sum(self.by_kind.get(kind, 0.0) for kind in KINDS)

    def __str__(self) -> str:
        parts = ", ".join(f"{kind} {self.by_kind.get(kind, 0.0):.1f}" for kind in KINDS)
        servers = f", servers {self.by_kind[SERVERS]:.1f} s" if SERVERS in self.by_kind else ""
        return f"{self.cpu:.1f} s of CPU ({parts}) in {self.wall:.1f} s{servers}"


def measure_by_thread(run: Callable[[], object], apart: Collection[int] = ()) -> CpuByThread:
    """Measure a run, including Spark's JVM and its Python workers. The processes ``apart`` are the kind ``servers``."""
    threads = partial(_threads, apart)
    before = {thread: ticks for thread, (ticks, _) in threads()}
    seen: dict[tuple[int, int], tuple[int, str]] = {}
    ended = Event()

    def sample() -> None:
        while not ended.wait(_EVERY_S):
            seen.update(threads())

    sampler = Thread(target=sample, daemon=True)
    sampler.start()
    began = time.perf_counter()
    try:
        run()
    finally:
        wall = time.perf_counter() - began
        ended.set()
        sampler.join()
    seen.update(threads())
    total = Counter[str]()
    for (pid, thread), (ticks, kind) in seen.items():
        used = ticks - before.get((pid, thread), 0)
        total[kind] += used
        if thread != _WHOLE and (whole := seen.get((pid, _WHOLE))):
            total[whole[1]] -= used
    return CpuByThread(wall, {kind: ticks / _TICKS for kind, ticks in total.items()})


def _threads(apart: Collection[int]) -> Iterator[tuple[tuple[int, int], tuple[int, str]]]:
    """Yield each thread of this process and its children: the process and the thread, and its CPU ticks and kind."""
    for pid in process_tree():
        process = Path(f"/proc/{pid}")
        is_jvm = _name(process / "stat") == "java"
        for task in (process, *process.glob("task/*")):
            try:
                head, _, rest = (task / "stat").read_text().rpartition(")")
            except OSError:
                continue
            ticks, thread = sum(map(int, rest.split()[11:13])), _WHOLE if task == process else int(task.name)
            name = "" if thread == _WHOLE else head.partition("(")[2]
            kind = SERVERS if pid in apart else _kind(name) if is_jvm else "python"
            yield (pid, thread), (ticks, kind)


def _kind(name: str) -> str:
    return next((kind for begin, kind in _JVM.items() if name.startswith(begin)), "driver")


def _name(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(")")[0].partition("(")[2]
    except OSError:
        return ""
