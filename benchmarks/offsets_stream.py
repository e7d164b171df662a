"""Measures how many commits per second the job of ``karrot pipeline offsets`` reads from a real broker.

PYTHONPATH=tests python benchmarks/offsets_stream.py [--records 3000000] [--rate 50000] [--seconds 60] [--json]

It needs Maven once, for the jars of the broker and the connector. First the job drains a backlog, batch by batch. Then
commits arrive at a steady rate and the stream must keep up. Both show whether time and memory per batch stay constant.
The records are in a copy of ``__consumer_offsets``, because the broker allows no writes to the topic itself.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import NEWEST_KAFKA, Parts, running
from karrot.pipeline.offsets.job import JsonTopic, LandOffsets, OffsetsSummary
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import RecordsFromKafka
from karrot.pipeline.stream.streaming_queries import run_queries
from karrot.watch.kafka_admin import KafkaCluster
from support.kafka.offset_records import commit_key, commit_value

TOPIC, JSON_TOPIC, PARTITIONS = "copy", "as-json", 4
BATCH = 500_000
KEYS = 24_000
TICK_S = 0.1


class Told(NamedTuple):
    """A batch: its end time, its size, and the JVM's memory and CPU time at the end."""

    at_s: float
    summary: OffsetsSummary
    rss_mb: float
    cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="publish as JSON too")
    asked = parser.parse_args()
    downloads = Downloads(default_cache())
    with (
        tempfile.TemporaryDirectory(prefix="karrot-bench-") as place,
        running(Parts(kafka_version=NEWEST_KAFKA), Path(place, "stack"), downloads) as stack,
    ):
        stack.kafka.create_topic(TOPIC, PARTITIONS)
        stack.kafka.create_topic(JSON_TOPIC, PARTITIONS)
        jars = ",".join(map(str, downloads.spark_kafka()))
        spark = session("local[2]", {"spark.jars": jars, "spark.driver.memory": "3g"}, name="bench")
        topic = JsonTopic(KafkaConnection(tuple(stack.kafka.addresses)), JSON_TOPIC) if asked.json else None
        job = Job(spark, stack.kafka, Path(place, "tables"), topic)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {PARTITIONS} partitions; JSON: {asked.json}")
        drained(job, stack.kafka, asked.records)
        kept_up(job, stack.kafka, asked.rate, asked.seconds)
        spark.stop()


class Job:
    """The job on the copy; ``told`` has its batches."""

    def __init__(self, spark: SparkSession, kafka: Kafka, directory: Path, topic: JsonTopic | None) -> None:
        self.told: list[Told] = []
        self.tables = Tables(str(directory))
        self._pid = jvm_of(spark)
        road = RecordsFromKafka(
            KafkaConnection(tuple(kafka.addresses)),
            KafkaCluster(kafka.client),
            StartingOffsets("earliest"),
            TOPIC,
            most=BATCH,
        )
        self.landing = LandOffsets(
            spark, road, "bench", self.tables, self.tables.checkpoint("offsets"), topic, tell=self._note
        )

    def run(self, every: timedelta | None = None, stop: Event | None = None) -> list[Told]:
        """Run the job; return its batches."""
        self.told.clear()
        run_queries([self.landing.start(every)], stop=stop or Event(), follow=every is not None)
        return list(self.told)

    def _note(self, summary: OffsetsSummary) -> None:
        self.told.append(Told(time.monotonic(), summary, *usage(self._pid)))


def drained(job: Job, kafka: Kafka, records: int) -> None:
    """Drain the backlog at full speed; the first batch, in which Spark compiles its code, is not counted."""
    produced_in = produce(kafka, records)
    first, *rest = batches = job.run()
    seconds = [after.at_s - before.at_s for before, after in itertools.pairwise(batches)]
    commits = sum(each.summary.records for each in rest)
    told("backlog drained", commits / sum(seconds), f"commits/s ({records:,} records, written in {produced_in:.0f} s)")
    told("of the JVM's CPU", commits / (rest[-1].cpu_s - first.cpu_s), "commits per CPU second")
    half = max(1, len(seconds) // 2)
    told("a full batch, first half / second half", median(seconds[:half]), "s", median(seconds[-half:]))
    bounded(job, batches)


def kept_up(job: Job, kafka: Kafka, rate: int, seconds: int) -> None:
    """Write at a steady rate with a trigger of five seconds; measure the stream's largest and last delay."""
    stop, written = Event(), [0]
    writer = Thread(target=steadily, args=(kafka, rate, seconds, written), daemon=True)

    def end() -> None:
        writer.join()
        time.sleep(6)  # one more batch for the last records
        stop.set()

    ender = Thread(target=end, daemon=True)
    began = time.monotonic()
    writer.start()
    ender.start()
    batches = job.run(timedelta(seconds=5), stop)
    landed = sum(each.summary.records for each in batches)
    told("steady: asked for", rate, f"commits/s for {seconds} s; written {written[0] / seconds:,.0f}/s")
    behind = f"in {len(batches)} batches; {written[0] - landed:,} behind at the end"
    told("steady: landed", landed / (batches[-1].at_s - began), f"commits/s {behind}")
    told("the largest batch", max(each.summary.records for each in batches), "commits")
    bounded(job, batches)


def bounded(job: Job, batches: list[Told]) -> None:
    """Measure memory and checkpoint at the end."""
    files = [each for each in Path(job.landing.checkpoint).rglob("*") if each.is_file()]
    size = sum(each.stat().st_size for each in files) / 1024
    told("memory of the JVM, first / last batch", batches[0].rss_mb, "MB", batches[-1].rss_mb)
    told("checkpoint", len(files), f"files, {size:,.0f} KiB")


def produce(kafka: Kafka, records: int) -> float:
    """Produce in another process, which ends before the measurement; return the seconds."""
    began = time.monotonic()
    subprocess.run([sys.executable, __file__, "produce", kafka.bootstrap, str(records)], check=True)
    return time.monotonic() - began


def steadily(kafka: Kafka, rate: int, seconds: int, written: list[int]) -> None:
    """Write this number of records per second, in ticks; a late tick is made up for."""
    command = [sys.executable, __file__, "steady", kafka.bootstrap, str(rate), str(seconds)]
    written[0] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def records_of() -> Iterator[tuple[int, bytes, bytes]]:
    """Yield partition, key and value without end; all groups commit in turn."""
    keys = [
        (number % PARTITIONS, commit_key(f"group-{number // 60}", "a-topic", number % 60)) for number in range(KEYS)
    ]
    for offset in itertools.count():
        value = commit_value(4, offset, commit_ts=round(time.time() * 1000))
        for partition, key in keys:
            yield partition, key, value


def write(bootstrap: str, records: int, rate: int | None = None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    of_tick = records if rate is None else round(rate * TICK_S)
    began, source = time.monotonic(), records_of()
    for tick in range(-(-records // of_tick)):
        if rate is not None:
            time.sleep(max(0.0, began + tick * TICK_S - time.monotonic()))
        for number, (partition, key, value) in enumerate(itertools.islice(source, of_tick)):
            producer.produce(TOPIC, value, key, partition=partition)
            if number % 10_000 == 0:
                producer.poll(0)
    left = producer.flush(120)
    print(records - left)


def usage(pid: int) -> tuple[float, float]:
    """Return the resident MB and CPU seconds of a process."""
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return resident, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def jvm_of(spark: SparkSession) -> int:
    jvm = spark.sparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def told(what: str, value: float, unit: str, later: float | None = None) -> None:
    print(f"{what}: {value:,.1f}{'' if later is None else f' / {later:,.1f}'} {unit}", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["produce", bootstrap, records]:
            write(bootstrap, int(records))
        case ["steady", bootstrap, rate, seconds]:
            write(bootstrap, int(rate) * int(seconds), int(rate))
        case _:
            main()
