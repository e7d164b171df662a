"""Runs the job that writes offsets to tables, then cuts the power at moments of these runs and runs it again.

    python -m support.powercut.offsets_job SCRATCH BATCHES CUTS

Each run reads one more file of records and makes one batch. The runs write to ``SCRATCH/disk``, which `Recording`
records. One JVM does all of it. After each cut, the program prints what it found.
"""

import sys
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from karrot.pipeline.offsets.job import LandOffsets
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables, UnreadableTable
from karrot.pipeline.stream.record_sources import RecordsFromParquet
from support.kafka.offset_records import commit_key, commit_value
from support.pipeline.kafka_source_rows import records_table
from support.powercut.recording import Recording
from support.powercut.replay import cuts

RECORDS = 10
RIGHT = "right"
_QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms400m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
}


def add_records(records: Path, batch: int) -> None:
    commits = [(commit_key(f"group-{each}", "t", 0), commit_value(3, batch)) for each in range(RECORDS)]
    pq.write_table(records_table(commits, batch * RECORDS), records / f"{batch}.parquet")


def run(spark: SparkSession, records: Path, tables: Tables) -> None:
    """Read the new files. As with Kafka, the job believes that Spark passes each record once."""
    source = RecordsFromParquet(str(records), may_repeat=False)
    LandOffsets(spark, source, "c", tables, tables.checkpoint("kafka")).start().awaitTermination()


def found_by_a_run(spark: SparkSession, records: Path, tables: Tables, batches: int) -> str:
    try:
        run(spark, records, tables)
        rows = sorted(row.log_offset for row in tables.read(spark, "commits").collect())
    except (Py4JJavaError, StreamingQueryException, UnreadableTable, ValueError) as error:
        return str(error).splitlines()[0]
    expected = [*range(batches * RECORDS)]
    return RIGHT if rows == expected else f"{len(rows)} rows with {len({*rows})} of {len(expected)} offsets"


def main(scratch: Path, batches: int, many: int) -> None:
    records, recording = scratch / "records", Recording.of(scratch)
    records.mkdir()
    spark = session("local[1]", _QUICK)
    for batch in range(batches):
        add_records(records, batch)
        run(spark, records, Tables(str(recording.folder / "tables")))
    add_records(records, batches)
    for flushes in (True, False):
        number = many if flushes else max(3, many // 10)
        for cut in cuts(recording, Random(many), number, scratch / "cut", flushes=flushes):
            found = found_by_a_run(spark, records, Tables(str(scratch / "cut" / "tables")), batches + 1)
            sys.stdout.write(f"{'flushes' if flushes else 'no flushes'}\t{found}\t{cut}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
