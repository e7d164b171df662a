"""Measures a minute of `karrot pipeline evaluate` by CPU, next to decoding the same records alone, in one JVM.

PYTHONPATH=tests python benchmarks/evaluate_batches.py [--partitions 10000,100000] [--commits 6] [--minutes 4]

Each group has ten partitions of its own topic, and each partition commits ``--commits`` times a minute. Every minute,
all groups are judged, and each verdict is written to /dev/null. In the first minutes, the JVM compiles and the rings
fill, so read the last line of each size.
"""

import argparse
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from harness.cpu_by_thread import measure_by_thread
from harness.offset_record_files import CommitRecords, write
from pyspark.sql import DataFrame, SparkSession

from karrot.pipeline.evaluate.evaluate_rules import EvaluateRules
from karrot.pipeline.evaluate.job import Evaluate, EvaluatedBatch, newest_record_ms
from karrot.pipeline.evaluate.notification_sinks import to_stream
from karrot.pipeline.evaluate.recent_log_ends import LogEndsFromParquet
from karrot.pipeline.offsets.commits import decode_offsets
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.record_sources import RecordsFromParquet

_FIRST_MS: Final = 1_800_000_000_000
_MINUTE_MS: Final = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="10000,100000", help="with commas")
    parser.add_argument("--commits", type=int, default=6, help="of each partition in a minute")
    parser.add_argument("--minutes", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="3g")
    asked = parser.parse_args()
    spark = session(f"local[{asked.cores}]", {"spark.driver.memory": asked.memory})
    for partitions in map(int, asked.partitions.split(",")):
        with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
            measure(spark, Path(directory), partitions, asked.commits, asked.minutes)
    spark.stop()


def measure(spark: SparkSession, place: Path, partitions: int, commits: int, minutes: int) -> None:
    """Print the CPU time of each minute."""
    made, seen, count = CommitRecords(partitions), list[EvaluatedBatch](), partitions * commits
    (place / "records").mkdir()
    with Path(os.devnull).open("w") as nothing:
        job = Evaluate(
            spark,
            RecordsFromParquet(str(place / "records")),
            LogEndsFromParquet(spark, str(place / "ends")),
            "prod-eu",
            Tables.at(spark, str(place / "tables")),
            str(place / "checkpoint"),
            EvaluateRules(),
            to_stream(nothing),
            lambda rows, _batch: newest_record_ms(rows),
            seen=seen.append,
        )
        for minute in range(minutes):
            began_ms = _FIRST_MS + minute * _MINUTE_MS
            write(made.ends(began_ms), place / "ends", began_ms)
            folder = place / "records" / str(minute)
            for part in range(2):  # a core reads each
                half_ms = began_ms + part * _MINUTE_MS // 2
                write(made.take(count // 2, half_ms, half_ms + _MINUTE_MS // 2), folder, half_ms)
            records = spark.read.parquet(str(folder))
            decoded = measure_by_thread(partial(decode_alone, records))
            spent = measure_by_thread(partial(job.take, records, minute))
            sizes = f"{partitions:,} partitions, {count:,} commits, minute {minute}"
            print(
                f"{sizes}, load {os.getloadavg()[0]:.1f}: {spent}\n"
                f"  {spent.cpu / partitions * 1e6:.0f} us a partition and verdict, {spent.cpu / count * 1e6:.1f} us a "
                f"commit; {spent.cpu / decoded.cpu:.1f} times decoding alone ({decoded.cpu / count * 1e6:.1f} us a "
                f"commit); state {state_bytes(place) / partitions:.0f} bytes a partition; {seen[-1].groups:,} groups",
                flush=True,
            )


def decode_alone(records: DataFrame) -> None:
    """Decode the records, and write nothing."""
    decode_offsets(records, "prod-eu").write.format("noop").mode("overwrite").save()


def state_bytes(place: Path) -> int:
    """The bytes of the state that a batch has written."""
    return sum(each.stat().st_size for each in (place / "checkpoint").glob("state/batch=*/kind=state/*.parquet"))


if __name__ == "__main__":
    main()
