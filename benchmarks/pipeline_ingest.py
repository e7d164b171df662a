"""Measures the step ``events``; the yardstick is Spark reading the same lines and writing nothing.

The yardstick is ``spark.read.schema(…).json(…)`` to ``noop``: it decompresses and parses, once. Ingest parses once too,
writes two tables, looks for events that are there already and counts its rows. The first round also compiles. CPU
seconds are those of the JVM and of this process; on a busy machine they are reliable, and the clock is not.

PYTHONPATH=tests python benchmarks/pipeline_ingest.py [--segments 2000] [--events 500] [--rounds 3] [--master local[2]]
"""

import argparse
import gzip
import os
import random
import tempfile
import threading
import time
from pathlib import Path

from harness.stopwatch import measure
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from karrot.burrow.payload import to_wire
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.pipeline.ingest.event_sources import EventsFromArchive
from karrot.pipeline.ingest.job import Ingest
from karrot.pipeline.schemas_and_conversions import LINE
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables
from support.burrow.lag_events import make_event, make_partition

_LOG_ID = "0123456789abcdef"
_START_MS = 1_746_950_400_000


def verdicts(rng: random.Random, count: int = 1000) -> list[bytes]:
    """Make lines like those of Burrow's verdicts, from ``source`` on: two partitions each, a hundred groups."""
    return [_verdict(number, rng) for number in range(count)]


def _verdict(number: int, rng: random.Random) -> bytes:
    parts = tuple(make_partition(partition=number, current_lag=rng.randrange(100_000)) for number in range(2))
    lag = sum(part.current_lag or 0 for part in parts)
    event = make_event(consumer=f"group-{number % 100:03d}", total_lag=lag, max_lag=parts[0], partitions=parts)
    line = encode(StoredEvent(_LOG_ID, 1, _START_MS, summarize(event, _START_MS), to_wire(event), event))
    return line[line.index(b',"source":') :]


def lines_of(first: int, count: int, told: list[bytes]) -> bytes:
    """Make events one second apart, each with its own number and time."""
    return b"".join(_head(seq) + told[seq % len(told)] for seq in range(first, first + count))


def _head(seq: int) -> bytes:
    at = _START_MS + seq * 1000
    return (
        f'{{"v":1,"event_id":"{_LOG_ID}-{seq}","log_id":"{_LOG_ID}","seq":{seq},'
        f'"received_at_ms":{at},"observed_at_ms":{at}'
    ).encode()


def fill(archive: Path, segments: int, each: int) -> int:
    """Write the archive; return the bytes of its lines."""
    told, size = verdicts(random.Random(7)), 0
    for number in range(segments):
        first = 1 + number * each
        lines = lines_of(first, each, told)
        hour = time.gmtime((_START_MS + first * 1000) / 1000)
        folder = archive / time.strftime("day=%Y-%m-%d/hour=%H", hour)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{_LOG_ID}-{first}-{first + each - 1}-{each}.jsonl.gz"
        (folder / name).write_bytes(gzip.compress(lines, compresslevel=6, mtime=0))
        size += len(lines)
    return size


class Discovery(StreamingQueryListener):
    """The seconds that the file source spent on finding segments, from Spark's own progress."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self.seconds += event.progress.durationMs.get("latestOffset", 0) / 1000

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802
        self.ended.set()


def read_only(spark: SparkSession, archive: Path) -> None:
    """Run the yardstick."""
    reader = spark.read.schema(LINE).option("recursiveFileLookup", "true")
    reader.json(str(archive)).write.format("noop").mode("overwrite").save()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--segments", type=int, default=2000)
    asked.add_argument("--events", type=int, default=500, help="in each segment")
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--master", default="local[2]")
    options = asked.parse_args()
    rows = options.segments * options.events
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory, "archive")
        size = fill(archive, options.segments, options.events)
        print(f"{options.segments} segments of {options.events} events, {size / rows:.0f} B a line; {options.master}")
        spark = session(options.master)
        discovery = Discovery()
        spark.streams.addListener(discovery)
        for number in range(options.rounds):
            yardstick = measure(lambda: read_only(spark, archive))
            discovery.seconds = 0.0
            discovery.ended.clear()
            job = Ingest(spark, EventsFromArchive(str(archive)), Tables(str(Path(directory, f"tables-{number}"))))
            ingest = measure(job.run)
            discovery.ended.wait(60)  # listeners are called later
            print(
                f"round {number + 1}: read {yardstick}, ingest {ingest},"
                f" {rows / ingest.wall:,.0f} events/s, ratio {yardstick.wall / ingest.wall:.2f},"
                f" by CPU {yardstick.cpu / ingest.cpu:.2f}, discovery {discovery.seconds:.2f} s"
                f" ({100 * discovery.seconds / ingest.wall:.1f} %), load {os.getloadavg()[0]:.1f}"
            )
            print(f"         {job.total}")
        spark.stop()


if __name__ == "__main__":
    main()
