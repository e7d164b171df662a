"""Measures a minute of `karrot pipeline offsets` by CPU, next to decoding and replaying the same records, in one JVM.

PYTHONPATH=tests python benchmarks/evaluate_batches.py [--partitions 10000,100000] [--commits 6] [--minutes 4] [--kafka]

Each group has ten partitions of its own topic, and each partition commits ``--commits`` times a minute. Log ends are
polled every ten seconds. Every minute, the job writes the tables, both judges judge all groups, and each verdict is
written to /dev/null. Three jobs that do the same are measured too: one that only writes the tables, and each judge
with a decoding of its own. In the first minutes, the JVM compiles and the rings fill, so read the last lines of each
size. With ``--kafka``, the records are in a topic of a
real broker, whose CPU time is shown apart. ``--master local-cluster[2,1,2048]`` has two executors.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from confluent_kafka import Consumer, Producer, TopicPartition
from harness.cpu_by_thread import CpuByThread, measure_by_thread
from harness.offset_record_files import PER_GROUP, CommitRecords, write
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import NEWEST_KAFKA, Parts, running
from karrot.clock import SystemClock
from karrot.event import TopicPartition as Place
from karrot.eventlog.base import StoredEvent
from karrot.pipeline.evaluate.bucket_state import EvaluateRules
from karrot.pipeline.evaluate.burrow_judge import BurrowJudge
from karrot.pipeline.evaluate.verdict_destinations import RefusedVerdict
from karrot.pipeline.offsets.commits import decode_offsets
from karrot.pipeline.offsets.job import Judge, LandOffsets, OffsetsBatch
from karrot.pipeline.offsets.log_ends import LogEndLook, LogEndPolls
from karrot.pipeline.replay.partition_status_changes import ReplayOptions, VerdictTimes, changes, statuses, together
from karrot.pipeline.spark_session import session
from karrot.pipeline.stale.stale_judge import StaleJudge
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.kafka_read_options import KafkaConnection, StartingOffsets
from karrot.pipeline.stream.record_sources import RecordsFromKafka, RecordsFromParquet, RecordSource
from karrot.pipeline.stream.streaming_queries import persisted, start_query
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.watch.kafka_admin import KafkaCluster

_STALE: Final = timedelta(minutes=2)
_MINUTE_MS: Final = 60_000
_FIRST_MS: Final = (round(time.time()) // 60 - 30) * _MINUTE_MS
"""The first minute. Kafka refuses records from the future, and deletes old ones."""
_PARTS: Final = 6
_TOPIC: Final = "copy-of-consumer-offsets"
_LOG_PARTITIONS: Final = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="10000,100000", help="with commas")
    parser.add_argument("--commits", type=int, default=6, help="of each partition in a minute")
    parser.add_argument("--minutes", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="3g")
    parser.add_argument("--kafka", action="store_true", help="read from a real broker")
    asked = parser.parse_args()
    conf = {"spark.driver.memory": asked.memory}
    with ExitStack() as ending:
        kafka = ending.enter_context(broker()) if asked.kafka else None
        if kafka:
            conf["spark.jars"] = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
        spark = session(asked.master, conf)
        for partitions in map(int, asked.partitions.split(",")):
            place = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="karrot-bench-")))
            bench = Bench(spark, place, CommitRecords(partitions), kafka)
            bench.measure(partitions * asked.commits, asked.minutes)
        spark.stop()


@contextmanager
def broker() -> Iterator[Kafka]:
    """Start a broker."""
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as place:
        parts = Parts(kafka_version=NEWEST_KAFKA)
        with running(parts, Path(place, "stack"), Downloads(default_cache())) as stack:
            stack.kafka.create_topic(_TOPIC, _LOG_PARTITIONS)
            yield stack.kafka


class Polled(NamedTuple):
    """The requests for log ends, which are as far behind the last commit as in the records."""

    made: CommitRecords

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(topics, PER_GROUP)

    def log_starts(self, places: Collection[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 0)

    def log_ends(self, places: Collection[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, self.made.written // len(self.made.keys) + 10)


def _write(file: TextIO, several: Iterable[StoredEvent]) -> Sequence[RefusedVerdict]:
    file.writelines(each.body.decode() for each in several)
    return ()


class Bench(NamedTuple):
    """One size. Without a broker, the records are in files."""

    spark: SparkSession
    place: Path
    made: CommitRecords
    kafka: Kafka | None

    def measure(self, count: int, minutes: int) -> None:
        """Print the CPU time of each minute with ``count`` commits."""
        partitions = len(self.made.keys)
        apart = [self.kafka.broker(each).pid for each in self.kafka.brokers] if self.kafka else []
        (self.place / "records").mkdir()
        with Path(os.devnull).open("w") as nothing:
            judges = [self.judges(name, nothing) for name in ("one", "alone")]
            polls = LogEndPolls(Polled(self.made), timedelta(0), SystemClock())
            job, landing = self.job("one", polls, judges[0]), self.job("alone", polls, [])
            for minute in range(minutes):
                records = self.records(count, minute, polls)
                waiting = [*polls.waiting]
                decoded = measure_by_thread(partial(decode_alone, records), apart)
                whole = measure_by_thread(partial(ended, job.start), apart)
                polls.waiting = [*waiting]
                measured = {"decoding": decoded, "one job": whole}
                measured["tables"] = measure_by_thread(partial(ended, landing.start), apart)
                for judge in judges[1]:
                    polls.waiting = [*waiting]
                    start = partial(self.judging, judge, polls.taken(()))
                    measured[judge.name] = measure_by_thread(partial(ended, start), apart)
                told = f"{partitions:,} partitions, {count:,} commits, minute {minute}, load {os.getloadavg()[0]:.1f}"
                state = state_bytes(self.place) / partitions
                three = sum(each.cpu for name, each in measured.items() if name not in ("decoding", "one job"))
                print(f"{told}: one job is {whole.cpu / three:.2f} of three; state {state:.0f} bytes a partition")
                for name, each in measured.items():
                    times = (
                        f"{each.cpu / count * 1e6:.1f} us of CPU a commit, {each.cpu / decoded.cpu:.2f} times decoding"
                    )
                    print(f"  {name}: {times}; {each}", flush=True)
        replayed = self.replayed(records, minutes - 1)
        print(f"  replay: {replayed.cpu / decoded.cpu:.2f} times decoding; {replayed}", flush=True)

    def tables(self, name: str) -> Tables:
        return Tables.at(self.spark, str(self.place / name / "tables"))

    def judges(self, name: str, nothing: TextIO) -> list[BurrowJudge | StaleJudge]:
        """Both judges, with their state in the checkpoint of a job."""
        own, place = (self.spark, "prod-eu", self.tables(name)), str(self.place / name / "checkpoint")
        burrow = BurrowJudge(*own, f"{place}/burrow", EvaluateRules(), {"nothing": partial(_write, nothing)})
        return [burrow, StaleJudge(*own, f"{place}/stale", _STALE, date(2026, 1, 1), {"stdout": lambda _line: None})]

    def job(self, name: str, polls: LogEndPolls, judges: list[BurrowJudge | StaleJudge]) -> LandOffsets:
        """The job for tables of its own."""
        tables, checkpoint = self.tables(name), str(self.place / name / "checkpoint")
        return LandOffsets(self.spark, self.source(), "prod-eu", tables, checkpoint, polls=polls, judges=judges)

    def judging(self, judge: Judge, look: LogEndLook | None) -> StreamingQuery:
        """Start a job that decodes the same records, and only judges."""
        place = str(self.place / "alone" / f"queries-{judge.name}")
        return start_query(self.source().records(self.spark), partial(judge_alone, judge, look), place, None)

    def source(self) -> RecordSource:
        """Like a topic, and unlike other files, the files of the benchmark have no record twice."""
        if self.kafka is None:
            return RecordsFromParquet(str(self.place / "records"), may_repeat=False)
        brokers, client = KafkaConnection(tuple(self.kafka.addresses)), KafkaCluster(self.kafka.client)
        return RecordsFromKafka(brokers, client, StartingOffsets("earliest"), _TOPIC, most=10_000_000)

    def records(self, count: int, minute: int, polls: LogEndPolls) -> DataFrame:
        """Make the records and the log ends of a minute."""
        began_ms, part_ms = _FIRST_MS + minute * _MINUTE_MS, _MINUTE_MS // _PARTS
        folder = self.place / "records" / str(minute)
        for part in range(_PARTS):
            at_ms = began_ms + part * part_ms
            write(self.made.ends(at_ms), self.place / "ends", at_ms)
            write(self.made.take(count // _PARTS, at_ms, at_ms + part_ms), folder, at_ms)
            polls.if_due()
        records = self.spark.read.parquet(str(folder))
        return records if self.kafka is None else produced(self.spark, self.kafka, records)

    def replayed(self, records: DataFrame, minute: int) -> CpuByThread:
        """Replay the commits of a minute, with a verdict at its beginning and at its end."""
        commits_at = str(self.place / "commits")
        decode_offsets(records, "prod-eu").drop("key", "value").write.parquet(commits_at)
        ends = self.spark.read.parquet(str(self.place / "ends")).select(
            F.lit("prod-eu").alias("cluster"),
            *("topic", "partition", "end_offset"),
            F.lit(0).cast("bigint").alias("start_offset"),
            F.unix_millis("observed_at").alias("observed_at_ms"),
        )
        commits = self.spark.read.parquet(commits_at)
        began_ms = _FIRST_MS + minute * _MINUTE_MS
        ended_ms = began_ms + _MINUTE_MS
        span = VerdictTimes(began_ms // 1000, ended_ms // 1000, 60)
        asked = ReplayOptions((RuleSet("burrow"),), span, 604_800, 120_000, {})
        return measure_by_thread(lambda: discard(statuses(changes(together(commits, ends), asked), commits, ended_ms)))


def produced(spark: SparkSession, kafka: Kafka, records: DataFrame) -> DataFrame:
    """Write the records to the topic, and return how Spark reads them from there."""
    before = log_ends(kafka)
    producer = Producer(kafka.client | {"linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    rows = records.select("key", "value", "partition", F.unix_millis("timestamp")).toArrow()
    for batch in rows.to_batches():
        for key, value, partition, at_ms in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            producer.produce(_TOPIC, value, key, partition, timestamp=at_ms)
            producer.poll(0)
    assert producer.flush(120) == 0
    after = log_ends(kafka)
    assert sum(after.values()) - sum(before.values()) == len(rows)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": _TOPIC}
    options |= {"startingOffsets": json.dumps({_TOPIC: before}), "endingOffsets": json.dumps({_TOPIC: after})}
    return spark.read.format("kafka").options(**options).load()


def log_ends(kafka: Kafka) -> dict[int, int]:
    """The log ends of the topic, by partition."""
    with closing(Consumer(kafka.client | {"group.id": "bench"})) as consumer:
        places = [TopicPartition(_TOPIC, number) for number in range(_LOG_PARTITIONS)]
        return {each.partition: consumer.get_watermark_offsets(each, timeout=10)[1] for each in places}


def ended(start: Callable[[], StreamingQuery]) -> None:
    """Start a query, and wait for its end."""
    start().awaitTermination()


def judge_alone(judge: Judge, look: LogEndLook | None, records: DataFrame, minute: int) -> None:
    """Decode the records once, and judge all groups."""
    now_ms = _FIRST_MS + (minute + 1) * _MINUTE_MS - 1
    with persisted(decode_offsets(records, "prod-eu")) as decoded:
        keys = decoded.select("topic", F.xxhash64("topic").alias("key")).distinct().collect()
        judge.take(OffsetsBatch(minute, now_ms, decoded, {row.topic: row.key for row in keys}, None, look))


def decode_alone(records: DataFrame) -> None:
    """Decode the records, and write nothing."""
    discard(decode_offsets(records, "prod-eu"))


def discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def state_bytes(place: Path) -> int:
    """The bytes of the state that a batch has written."""
    return sum(
        each.stat().st_size for each in (place / "one/checkpoint/burrow").glob("state/batch=*/kind=state/*.parquet")
    )


if __name__ == "__main__":
    main()
