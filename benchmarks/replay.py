"""Measures replay; the yardsticks are the sort that it needs, and one rule set against six.

PYTHONPATH=tests python benchmarks/replay.py [--rows 10000000] [--rounds 2] [--master local[2]]

24,000 partitions of groups commit every 10 s, log ends are sampled every 30 s, three groups share a topic. The
yardstick groups the same commits by partition and group, sorts them by their offset in the log, by names, and discards
them. CPU seconds are those of the JVM and of its Python workers; they are steadier than the clock on a busy machine.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.stopwatch import Duration, measure, median_duration
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.replay.partition_status_changes import ReplayOptions, VerdictTimes, changes, statuses, together
from karrot.pipeline.spark_session import session
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

PARTITIONS, PER_GROUP, GROUPS_PER_TOPIC = 24_000, 10, 3
COMMIT_S, LOOK_S, EVERY_S = 10, 30, 60
BEGIN_S = 1_763_596_800
RATE = 7
ONE = (RuleSet("burrow"),)
SIX = (
    *ONE,
    RuleSet("longer", intervals=20),
    RuleSet("allowed", allowed_lag=500),
    RuleSet("spread", min_distance=30),
    RuleSet("complete", minimum_complete=1.0),
    RuleSet("short", intervals=5, min_distance=20),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    spark = session(asked.master, {"spark.driver.memory": "6g"})
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        commits, ends = written(spark, Path(directory), asked.rows)
        rounds = [shown(measured(commits, ends, asked.rows)) for _ in range(asked.rounds + 1)]
    spark.stop()
    # The first round compiles.
    kept = {name: median_duration([each[name] for each in rounds[1:] or rounds]) for name in rounds[0]}
    for name, each in kept.items():
        speed = asked.rows / each.wall / 1e6
        print(f"{name:<22} {each.wall:6.1f} s, {each.cpu:6.1f} s of CPU, {speed:.2f} M commits/s")
    for what, over, under, target in (
        ("sorting alone / replay", "sorting alone", "one set of rules", "at least 0.5"),
        ("six sets / one", "six sets of rules", "one set of rules", "at most 2.5"),
    ):
        wall, cpu = kept[over].wall / kept[under].wall, kept[over].cpu / kept[under].cpu
        print(f"{what}: {wall:.2f}, by CPU {cpu:.2f} ({target})")
    print(f"load {os.getloadavg()[0]:.1f}")


def shown(each: dict[str, Duration]) -> dict[str, Duration]:
    told = (f"{name} {took}" for name, took in each.items())
    print(", ".join(told), file=sys.stderr, flush=True)
    return each


def measured(commits: DataFrame, ends: DataFrame, rows: int) -> dict[str, Duration]:
    last = BEGIN_S + rows // PARTITIONS * COMMIT_S
    span = VerdictTimes(BEGIN_S // EVERY_S * EVERY_S, last // EVERY_S * EVERY_S, EVERY_S)

    def replayed(sets: tuple[RuleSet, ...]) -> Callable[[], None]:
        asked = ReplayOptions(sets, span, 604_800, 120_000, {})
        return lambda: discarded(statuses(changes(together(commits, ends), asked), commits, last * 1000))

    by_name = ("cluster", "topic", "partition", "consumer")
    return {
        "sorting alone": measure(
            lambda: discarded(commits.repartition(*by_name).sortWithinPartitions(*by_name, "log_offset"))
        ),
        "one set of rules": measure(replayed(ONE)),
        "six sets of rules": measure(replayed(SIX)),
    }


def written(spark: SparkSession, place: Path, rows: int) -> tuple[DataFrame, DataFrame]:
    """Write commits in Kafka's order; one group in twenty stands still for a time."""
    number, of_partition = F.col("id"), F.col("id") % PARTITIONS
    turn, group = (F.col("id") / PARTITIONS).cast("long"), (of_partition / PER_GROUP).cast("long")
    at_ms = F.lit(BEGIN_S * 1000) + turn * COMMIT_S * 1000 + F.pmod(F.xxhash64(of_partition), F.lit(COMMIT_S * 1000))
    stands = (group % 20 == 0) & turn.between(120, 240)
    read = F.when(stands, 120).otherwise(turn) * RATE * COMMIT_S - F.pmod(F.xxhash64(number), F.lit(30))
    spark.range(rows).select(
        *_names(group),
        (of_partition % PER_GROUP).cast("int").alias("partition"),
        F.concat(F.lit("service-group-"), group).alias("consumer"),
        (read + 1_000).cast("long").alias("offset"),
        F.lit(False).alias("tombstone"),
        at_ms.alias("commit_ts_ms"),
        number.alias("log_offset"),
        at_ms.alias("log_ts_ms"),
    ).write.parquet(str(place / "commits"))
    of_topics = PARTITIONS // GROUPS_PER_TOPIC
    look, topic = (number / of_topics).cast("long"), (number % of_topics / PER_GROUP).cast("long") * GROUPS_PER_TOPIC
    spark.range(of_topics * (rows // PARTITIONS * COMMIT_S // LOOK_S + 1)).select(
        *_names(topic),
        (number % PER_GROUP).cast("int").alias("partition"),
        (look * RATE * LOOK_S + 1_010).alias("end_offset"),
        (F.lit((BEGIN_S - 5) * 1000) + look * LOOK_S * 1000).alias("observed_at_ms"),
    ).write.parquet(str(place / "ends"))
    return spark.read.parquet(str(place / "commits")), spark.read.parquet(str(place / "ends"))


def _names(group: Column) -> list[Column]:
    topic = F.floor(group / GROUPS_PER_TOPIC)
    return [F.lit("prod-eu").alias("cluster"), F.concat(F.lit("topic.name-"), topic).alias("topic")]


def discarded(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
