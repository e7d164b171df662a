"""Measures a turn of ``karrot pipeline run``: 15 minutes of events of ten groups, as a Deployment gets them.

The yardstick is a process that starts Spark, counts ten rows and ends: a run of cron pays at least that for each
command. The first turn reads a day and a half, and compiles Spark's code. The next turns each read 15 minutes and
derive the running day again. CPU seconds are those of the JVM and of this process; on a busy machine they are reliable,
and the clock is not.

PYTHONPATH=tests:. python benchmarks/pipeline_run.py [--groups 10] [--turns 8] [--master local[2]] [--conf KEY=VALUE]
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from harness.stopwatch import measure
from pyspark.sql import SparkSession

from karrot.clock import SystemClock
from karrot.pipeline.derive.job import DeriveRules
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.run.pipeline_steps import Jobs
from karrot.pipeline.run.step_loop import RunMetrics
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables
from tools.history_generator.history_scenario import CLUSTERS
from tools.history_generator.history_writer import write_history

_QUARTER_MS = 900_000
_BARE = """
from harness.stopwatch import cpu_seconds
from karrot.pipeline.spark_session import session
spark = session({master!r})
spark.range(10).count()
print(cpu_seconds())
spark.stop()
"""


def quarters(source: Path) -> Iterator[dict[str, list[bytes]]]:
    """Yield the archive's lines of each quarter of an hour, by log."""
    found: dict[int, dict[str, list[tuple[int, bytes]]]] = defaultdict(lambda: defaultdict(list))
    for segment in source.rglob("*.jsonl.gz"):
        for line in gzip.decompress(segment.read_bytes()).splitlines(keepends=True):
            event = json.loads(line)
            found[event["received_at_ms"] // _QUARTER_MS][event["log_id"]].append((event["seq"], line))
    for _, logs in sorted(found.items()):
        yield {log: [line for _, line in sorted(lines)] for log, lines in logs.items()}


def write(archive: Path, quarter: dict[str, list[bytes]]) -> None:
    """Write a quarter of an hour as one segment for each log."""
    for log, lines in quarter.items():
        first, last = (json.loads(line)["seq"] for line in (lines[0], lines[-1]))
        (archive / f"{log}-{first}-{last}-{len(lines)}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), 6))


def bare_session(master: str) -> float:
    """Return the CPU seconds of a process that starts Spark and counts ten rows."""
    command = [sys.executable, "-c", _BARE.format(master=master)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def memory(spark: SparkSession) -> str:
    """Return what the JVM uses after a collection. A process that stays must not grow from turn to turn."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 (pyspark has no other way to the JVM)
    jvm.java.lang.System.gc()
    used: dict[str, int] = defaultdict(int)
    for pool in jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans():
        kind = {"Code": "code", "Meta": "metaspace"}.get(pool.getName()[:4], "")
        used[kind or ("heap" if str(pool.getType().name()) == "HEAP" else "other")] += pool.getUsage().getUsed()
    return ", ".join(f"{name} {used[name] / 2**20:.0f} MB" for name in ("heap", "metaspace", "code"))


def main() -> None:
    """Print the CPU seconds of each turn by step, and the ratio to the yardstick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    bare = bare_session(asked.master)
    print(f"a bare session: {bare:.1f} s of CPU", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        _turns(asked, Path(directory), bare)


def _turns(asked: argparse.Namespace, directory: Path, bare: float) -> None:
    source, archive = directory / "source", directory / "archive"
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    for cluster in CLUSTERS:
        (source / cluster).mkdir(parents=True)
        truth, groups = directory / f"{cluster}.jsonl", asked.groups // len(CLUSTERS)
        write_history(source / cluster, truth, cluster, start_ms=int(start.timestamp()) * 1000, groups=groups, days=2)
    archive.mkdir()
    told = list(quarters(source))
    noon = len(told) * 3 // 4
    for quarter in told[:noon]:
        write(archive, quarter)
    spark = session(asked.master, dict(text.split("=", 1) for text in asked.conf), name="turns")
    metrics = RunMetrics(started_s=0, interval_s=900)
    jobs = Jobs(spark, Tables(str(directory / "tables")), SystemClock(), metrics)
    steps = {
        "events": partial(jobs.events, partial(EventsFromArchive, str(archive)), ""),
        "derive": partial(jobs.derive, DeriveRules(), []),
    }
    warm: list[float] = []
    for number in range(asked.turns):
        if number:
            write(archive, told[noon + number])
        took = {name: measure(partial(work, Event())) for name, work in steps.items()}
        cpu = sum(each.cpu for each in took.values())
        parts = "; ".join(f"{name} {each}" for name, each in took.items())
        print(f"turn {number + 1}: {cpu:5.1f} s of CPU; {parts}; {memory(spark)}", flush=True)
        if number >= asked.turns // 2:
            warm.append(cpu)
    spark.stop()
    low, middle, high = min(warm), statistics.median(warm), max(warm)
    print(f"a warm turn: {middle:.1f} s of CPU ({low:.1f} to {high:.1f}), {middle / bare:.2f} of a bare session")


if __name__ == "__main__":
    main()
