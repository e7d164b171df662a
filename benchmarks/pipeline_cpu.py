"""Measures the CPU time of ingest and derive by kind of thread, in one JVM; the yardstick is derive in DuckDB.

make history ARGS="--groups 10 --days 1"
PYTHONPATH=tests python benchmarks/pipeline_cpu.py build/history/archive [--rounds 3] [--cores 2]

Every round makes all tables of the archive again. In the first round, the JVM compiles Spark and the queries. The other
rounds are what a process that stays (``karrot pipeline run --every``) spends. The DuckDB prototype does less than
derive: `harness.derive_in_duckdb` says what it leaves out.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path

from harness.cpu_by_thread import CpuByThread, measure_by_thread
from harness.derive_in_duckdb import derive_in_duckdb
from pyspark.sql import SparkSession

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.ingest.job import Ingest
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    started: list[SparkSession] = []
    start = measure_by_thread(lambda: started.append(session(f"local[{asked.cores}]", {"spark.driver.memory": "2g"})))
    print(f"start: {start}", flush=True)
    (spark,) = started
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        for number in range(asked.rounds):
            ingest, derived, yardstick = one_round(spark, asked.archive, Path(directory, str(number)), asked.cores)
            print(f"round {number}, load {os.getloadavg()[0]:.1f}")
            print(f"  ingest: {ingest}\n  derive: {derived}\n  DuckDB: {yardstick.cpu:.1f} s of CPU", flush=True)
            print(f"  derive has {derived.cpu / yardstick.cpu:.1f} times the CPU time of DuckDB", flush=True)
    spark.stop()


def one_round(
    spark: SparkSession, archive: Path, place: Path, cores: int
) -> tuple[CpuByThread, CpuByThread, CpuByThread]:
    """Ingest the archive into new tables, derive them, and derive them again in DuckDB."""
    tables = Tables(str(place / "tables"))
    job = Ingest(spark, EventsFromArchive(str(archive)), tables)
    ingest = measure_by_thread(job.run)
    derived = measure_by_thread(partial(derive, spark, tables, DeriveRules(), on_progress=quietly))
    yardstick = measure_by_thread(lambda: derive_in_duckdb(place / "tables", place / "duckdb", threads=cores))
    return ingest, derived, yardstick


def quietly(_line: str) -> None:
    """Ignore the progress."""


if __name__ == "__main__":
    main()
