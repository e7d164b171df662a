"""Measures the CPU time of derive by row from a million to fifty million events, in one JVM.

PYTHONPATH=tests python benchmarks/derive_scale.py [--rows 1000000,5000000,20000000,50000000] [--cores 2]

Each size is a day of more groups: every group has an event every 10 s, and lists three partitions in every fifth event.
The first size runs twice, and its first run, in which the JVM compiles, is not compared.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

from derive import history, listings, quietly
from harness.cpu_by_thread import CpuByThread, measure_by_thread
from pyspark.sql import SparkSession

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables

EVENTS_OF_A_GROUP = 8_640


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1000000,5000000,20000000,50000000", help="events, with commas")
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    sizes = [int(text) for text in asked.rows.split(",")]
    spark = session(f"local[{asked.cores}]", {"spark.driver.memory": "4g"})
    first = 0.0
    for number, events in enumerate([sizes[0], *sizes]):
        with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
            rows, spent = one_size(spark, Path(directory), events)
        each = spent.cpu / rows * 1e6
        if number == 1:
            first = each
        compared = f", {each / first:.2f} times the first" if number else ", compiling"
        print(
            f"{events:,} events, {rows:,} rows: {each:.1f} us of CPU a row{compared}; {spent}; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    spark.stop()


def one_size(spark: SparkSession, place: Path, events: int) -> tuple[int, CpuByThread]:
    """Derive a day of this number of events. Return the rows of events and partitions, the CPU time."""
    tables, groups = Tables(str(place)), max(1, events // EVENTS_OF_A_GROUP)
    made = history(spark, events, days=1, groups=groups)
    tables.append(made, "events", "b-0")
    tables.append(listings(made, groups=groups), "partitions", "b-0")
    rows = sum(tables.read(spark, name).count() for name in ("events", "partitions"))
    spent = measure_by_thread(partial(derive, spark, tables, DeriveRules(), on_progress=quietly))
    return rows, spent


if __name__ == "__main__":
    main()
