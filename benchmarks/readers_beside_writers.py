"""Counts rows with Spark while a writer replaces, appends, merges and deletes, and then commits small batches for days.

PYTHONPATH=tests python benchmarks/readers_beside_writers.py [--place local] [--rounds 12] [--days 3]

A query must count the rows of a version that was the newest at some time while it ran, or it must fail. In the last
rounds, the files of old versions are deleted at once and not after a day, so that queries fail. Then batches are
committed as ``offsets --follow`` does every 60 s, with a copy of one small file instead of rows from Spark, and with a
retention of seconds instead of a day.
"""

import datetime as dt
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import click
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from e2e.pipeline_hdfs import hdfs
from e2e.pipeline_s3 import s3_server
from e2e.pipeline_stores import LocalDisk, Store
from karrot.history.delta_tables import DataFile
from karrot.pipeline.schemas_and_conversions import COMMITS, LAG_MINUTE, with_day
from karrot.pipeline.spark_session import session
from karrot.pipeline.store import table_files
from karrot.pipeline.store.compact_and_expire import compact
from karrot.pipeline.store.table_files import Tables

DAY = dt.date(2026, 11, 20)
SIZES = (20_000, 50_000, 30_000, 100_000)
BATCH = 500
SECONDS = 20
"""How long the simulation keeps old versions."""


@dataclass
class Truth:
    """The number of rows of each version of a table, beginning with the version before the first. ``done`` counts."""

    rows: list[int] = field(default_factory=lambda: [0])
    done: int = 0

    def write(self, rows: int, write: Callable[[], object]) -> None:
        """Write a version with this number of rows."""
        self.rows.append(rows)
        write()
        self.done += 1

    def read(self, count: Callable[[], int]) -> str:
        """Count, and say whether the number is that of a version that was the newest meanwhile."""
        before = self.done
        try:
            found = count()
        except Exception as error:  # noqa: BLE001 (any error is one: what counts is that no number is wrong)
            return f"failed with {type(error).__name__}"
        allowed = self.rows[before : len(self.rows)]
        return "right" if found in allowed else f"WRONG: {found} rows and not {allowed}"


def filled(spark: SparkSession, schema: Any, rows: int) -> DataFrame:
    """Rows that do not compress well, so that a scan has several tasks."""
    text = {"cluster": F.lit("c"), "consumer": F.concat(F.lit("group-"), F.xxhash64("id").cast("string"))}
    numbers = {"lag_last": F.xxhash64("id", F.lit(3)), "log_offset": F.col("id"), "log_partition": F.lit(0)}
    known = {**text, **numbers, "day": F.lit(DAY)}
    columns = [known.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in with_day(schema)]
    return spark.range(rows).select(*columns)


def beside(spark: SparkSession, tables: Tables, rounds: int) -> Counter[str]:
    """Read and write at the same time. Return how often each outcome came."""
    lag, commits, stop, found = Truth(), Truth(), Event(), Counter[str]()

    def count(name: str, column: str) -> int:
        [row] = tables.read(spark, name).agg(F.count(column).alias("rows")).collect()
        return int(row.rows)

    def read() -> None:
        while not stop.is_set():
            found[f"lag_minute: {lag.read(lambda: count('lag_minute', 'lag_last'))}"] += 1
            found[f"commits: {commits.read(lambda: count('commits', 'log_offset'))}"] += 1

    reader = Thread(target=read)
    reader.start()
    try:
        for number in range(rounds):
            rows = SIZES[number % len(SIZES)]
            day = filled(spark, LAG_MINUTE, rows).withColumn("piece", F.lit(0))
            lag.write(rows, partial(tables.replace_days, day, "lag_minute", [DAY]))
            batch = filled(spark, COMMITS, BATCH).withColumn("log_offset", F.col("log_offset") + number * BATCH)
            commits.write(commits.rows[-1] + BATCH, partial(tables.append, batch, "commits", f"b-{number:06d}"))
            if number % 3 == 2:
                compact(spark, tables, keep=dt.timedelta(days=3650), today=DAY + dt.timedelta(days=1))
            if number >= rounds * 2 // 3:
                for each in ("lag_minute", "commits"):
                    table = tables._open(spark, each)  # noqa: SLF001 (as no command does it)
                    assert table is not None
                    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    finally:
        stop.set()
        reader.join()
    return found


def days_of_batches(spark: SparkSession, place: Path, days: int, batches: int) -> bool:
    """Commit small batches, and print a line for each day. Return whether files and log stayed few."""
    tables, template = Tables(str(place)), place / "template.parquet"
    batch = filled(spark, COMMITS, 10)
    batch.drop("day").coalesce(1).write.parquet(str(place / "made"))
    next((place / "made").glob("part-*.parquet")).rename(template)
    today = DAY

    def written(_: Tables, _df: DataFrame, name: str, batch_id: str, *_options: object) -> list[DataFile]:
        path = f"batch_id={batch_id}.{time.monotonic_ns():x}/day={today}/part-0.parquet"
        target = place / name / path
        target.parent.mkdir(parents=True)
        shutil.copyfile(template, target)
        return [DataFile.at(path, target.stat().st_size, 10)]

    table_files.Tables._written = written  # type: ignore[method-assign,assignment] # noqa: SLF001 (instead of Spark)
    tables.append(batch, "commits", "first")
    kept = f"interval {SECONDS} seconds"
    short = {"delta.deletedFileRetentionDuration": kept, "delta.logRetentionDuration": kept}
    DeltaTable(place / "commits").alter.set_table_properties(short)
    logs, opened, most = list[int](), list[float](), 0
    for number in range(days):
        today, live = DAY + dt.timedelta(days=number), 0
        began, spent = time.monotonic(), time.process_time()
        for each in range(batches):
            tables.append(batch, "commits", f"run{number:03d}-{each:06d}", job="run")
            if each % 20 == 0:
                live = max(live, sum(file.day == today for file in tables.files(spark, "commits")))
        took, cpu_ms = time.monotonic() - began, (time.process_time() - spent) / batches * 1e3
        before = time.monotonic()
        tables.files(spark, "commits")
        opened.append(time.monotonic() - before)
        time.sleep(SECONDS + 1)
        compact(spark, tables, keep=dt.timedelta(days=3650), today=today + dt.timedelta(days=1))
        files = tables.files(spark, "commits")
        logs.append(sum(1 for _ in (place / "commits/_delta_log").iterdir()))
        on_disk = sum(1 for _ in (place / "commits").rglob("part-*"))
        most = max(most, live)
        click.echo(
            f"day {number + 1}: {batches} commits in {took:.0f} s, {cpu_ms:.0f} ms of Python's CPU each, "
            f"at most {live} files a day; opened in {opened[-1] * 1e3:.0f} ms; after compact {len(files)} files of "
            f"{number + 1} days, {on_disk} on the disk, {logs[-1]} in the log",
        )
    flat = not logs[2:] or logs[-1] < 2 * statistics.median(logs[1:])
    return most <= 200 and len(files) == days and flat


@click.command()
@click.option("--place", "places", multiple=True, type=click.Choice(["local", "s3", "hdfs"]), default=["local", "s3"])
@click.option("--rounds", default=12, show_default=True)
@click.option("--days", default=3, show_default=True)
@click.option("--batches", default=1_440, show_default=True, help="Of a day.")
def main(places: Sequence[str], rounds: int, days: int, batches: int) -> None:
    """Read beside a writer. The exit code is 1 if a query counted wrong rows, or if files or logs grew."""
    failed = False
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        stores: dict[str, Store] = {}
        for place in places:
            if place == "local":
                stores[place] = LocalDisk(Path(directory, "local"))
            elif place == "s3":
                stores[place] = stack.enter_context(s3_server())
            else:
                stores[place] = stack.enter_context(hdfs(Path(directory, "hdfs")))
        conf = {name: text for store in stores.values() for name, text in store.spark_conf.items()}
        # So a scan of a small file has several tasks, as that of a large file.
        conf |= {"spark.sql.files.maxPartitionBytes": "256k", "spark.sql.files.openCostInBytes": "0"}
        spark = session("local[2]", conf)
        for place, store in stores.items():
            for what, count in sorted(beside(spark, Tables.at(spark, f"{store.url}/tables"), rounds).items()):
                failed |= "WRONG" in what
                click.echo(f"{place}: {count:4} {what}")
        if days:
            failed |= not days_of_batches(spark, Path(directory), days, batches)
        spark.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
