"""Measures a batch of the judge ``stale`` in which every partition commits, and the memory that its state takes.

PYTHONPATH=tests python benchmarks/stale_state.py [--partitions 50000] [--batches 4] [--cores 2] [--memory 2g]

Each group has 50 partitions of its own topic. In each batch, every partition has one commit and one log-end sample. A
hundredth of the partitions stands still, so its alerts open when the samples reach back far enough. In the
first batches, the JVM compiles, so read the last line. The memory is measured after a batch and a garbage collection.
"""

import argparse
import datetime as dt
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from harness.cpu_by_thread import measure_by_thread
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from karrot.event import TopicPartition
from karrot.pipeline.offsets.job import OffsetsBatch
from karrot.pipeline.offsets.log_ends import LogEndLook
from karrot.pipeline.spark_session import session
from karrot.pipeline.stale.stale_judge import DeliverySummary, StaleJudge
from karrot.pipeline.store.table_files import Tables

_EVERY_MS: Final = 30_000
_PER_GROUP: Final = 50
_FIRST_MS: Final = 1_700_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g")
    asked = parser.parse_args()
    spark = session(f"local[{asked.cores}]", {"spark.driver.memory": asked.memory})
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place, told = Path(directory), list[DeliverySummary]()
        tables, length, since = Tables(str(place / "tables")), dt.timedelta(milliseconds=2 * _EVERY_MS), dt.date.min
        state = str(place / "checkpoint")
        judge = StaleJudge(spark, "prod-eu", tables, state, length, since, {"stdout": lambda _line: None}, told.append)
        for number in range(asked.batches):
            batch = batch_of(spark, asked.partitions, number, place / "records")
            spent = measure_by_thread(partial(judge.take, batch))
            print(f"batch {number}, load {os.getloadavg()[0]:.1f}: {spent}")
            print(f"  {memory(spark)}; state {size_of(place / 'checkpoint') / 1e6:.1f} MB; {told[-1]}", flush=True)
    spark.stop()


def batch_of(spark: SparkSession, partitions: int, number: int, place: Path) -> OffsetsBatch:
    """A batch with a commit and a log end of each partition. The commits are in files, as a source has them."""
    at_ms, group = _FIRST_MS + number * _EVERY_MS, F.expr(f"id div {_PER_GROUP}").cast("string")
    offset = F.when(F.col("id") % 100 == 0, 0).otherwise(F.pmod(F.xxhash64("id"), F.lit(10**9)) + 1_000 * number)
    late_ms = F.pmod(F.xxhash64("id", F.lit(number)), F.lit(_EVERY_MS))
    commits = spark.range(partitions).select(
        F.concat(F.lit("group-"), group).alias("consumer"),
        F.concat(F.lit("topic-"), group).alias("topic"),
        (F.col("id") % _PER_GROUP).cast("int").alias("partition"),
        offset.cast("bigint").alias("offset"),
        F.lit(False).alias("tombstone"),
        (at_ms + late_ms).alias("log_ts_ms"),
        (F.col("id") + number * partitions).alias("log_offset"),
    )
    path = str(place / str(number))
    commits.write.parquet(path)
    places = [TopicPartition(f"topic-{each // _PER_GROUP}", each % _PER_GROUP) for each in range(partitions)]
    now_ms, end = at_ms + _EVERY_MS, np.full(partitions, 2 * 10**9)
    look = LogEndLook(places, np.full(partitions, now_ms), end, np.zeros_like(end), ())
    return OffsetsBatch(number, now_ms, spark.read.parquet(path), {}, None, look, now_ms - 1)


def memory(spark: SparkSession) -> str:
    """The memory that the driver keeps: the heap of the JVM after a collection, and the resident memory of Python."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 (pyspark has no other way to the JVM)
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    heap = runtime.totalMemory() - runtime.freeMemory()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, peak = (int(status[name].split()[0]) / 1e3 for name in ("VmRSS", "VmHWM"))
    return f"JVM heap {heap / 1e6:.0f} MB, Python {resident:.0f} MB, at most {peak:.0f} MB"


def size_of(directory: Path) -> int:
    """The bytes of all files in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
