"""Measures the decoding of ``__consumer_offsets``; the yardsticks are a scan of the same Parquet and a Python UDF.

Every way writes to ``noop``. The records: 94 % commits (values of version 0 to 4, as old and new brokers write them),
2 % tombstones, 2 % group metadata and 2 % of KIP-848, of 24,000 keys. The CPU time is that of the JVM and of Python's
workers. The first round also compiles, so the best of the others counts.

PYTHONPATH=tests python benchmarks/decode.py [--records 2000000] [--rounds 3] [--master local[2]]
"""

import argparse
import os
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from struct import unpack_from

import pyarrow as pa
import pyarrow.parquet as pq
from harness.stopwatch import Duration, measure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.offsets.commits import decode_offsets
from karrot.pipeline.spark_session import session
from support.kafka.offset_records import Member, assignment, commit_key, commit_value, group_key, group_value, other_key

_FROM_MS = 1_746_950_400_000
_AT_ONCE = 100_000
_UDF_TYPE = (
    "consumer string, topic string, partition int, version int, offset bigint, metadata string, commit_ts bigint"
)


def rows(rng: random.Random, count: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield keys and values from prepared ones, because only the decoding is measured."""
    keys = [
        commit_key(f"group-{group:04d}-of-consumers", f"topic.{group % 50:03d}.events", partition)
        for group in range(1000)
        for partition in range(24)
    ]
    values = [_value(rng) for _ in range(50_000)]
    member = Member(assigned=assignment({"orders": list(range(12))}))
    others = [(group_key("orders-svc"), group_value(3, [member] * 4)), (other_key(3, "orders-svc"), b"\0\0\0\0\0\1\0")]
    for _ in range(count):
        drawn = rng.random()
        if drawn < 0.96:
            yield rng.choice(keys), (rng.choice(values) if drawn < 0.94 else None)
        else:
            yield others[drawn < 0.98]


def _value(rng: random.Random) -> bytes:
    version = rng.choices((0, 1, 3, 4), weights=(5, 25, 60, 10))[0]
    metadata = "m" * 140 if rng.random() < 0.01 else ""
    at = _FROM_MS + rng.randrange(86_400_000)
    tagged = {0: rng.randbytes(16)}
    told = {"commit_ts": at, "expire_ts": at + 86_400_000, "epoch": rng.choice((-1, 5))}
    return commit_value(version, rng.randrange(10**9), metadata=metadata, tagged=tagged, **told)


def fill(path: Path, count: int) -> None:
    """Write one file with the columns of the Kafka source."""
    rng, writer = random.Random(7), None
    for first in range(0, count, _AT_ONCE):
        keys, values = zip(*rows(rng, min(_AT_ONCE, count - first)), strict=True)
        numbers = range(first, first + len(keys))
        table = pa.table(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "topic": ["__consumer_offsets"] * len(keys),
                "partition": pa.array([first % 50] * len(keys), pa.int32()),
                "offset": pa.array(numbers, pa.int64()),
                "timestamp": pa.array([(_FROM_MS + at) * 1000 for at in numbers], pa.timestamp("us", "UTC")),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer:
        writer.close()


def by_udf(records: DataFrame) -> DataFrame:
    """Decode row by row in simple Python: only commits of versions 0 to 3, without checks."""

    def decoded(key: bytes, value: bytes | None) -> tuple[str, str, int, int, int, str, int] | None:
        if value is None or key[:2] not in (b"\0\0", b"\0\1"):
            return None
        (group,) = unpack_from(">h", key, 2)
        (topic,) = unpack_from(">h", key, 4 + group)
        (partition,) = unpack_from(">i", key, 6 + group + topic)
        version, offset = unpack_from(">hq", value)
        at = 14 if version >= 3 else 10
        (length,) = unpack_from(">h", value, at) if version < 4 else (0,)
        at += 2 if version < 4 else 1
        (commit_ts,) = unpack_from(">q", value, at + length)
        names = key[4 : 4 + group].decode(), key[6 + group : 6 + group + topic].decode()
        return *names, partition, version, offset, value[at : at + length].decode(), commit_ts

    return records.withColumn("told", F.udf(decoded, _UDF_TYPE, useArrow=False)("key", "value"))


def discarded(table: DataFrame) -> None:
    table.write.format("noop").mode("overwrite").save()


def compare(spark: SparkSession, path: Path, count: int, rounds: int) -> None:
    """Print each round, and then the ratios of the best rounds."""
    records = spark.read.parquet(str(path))
    ways = {"scan": records, "decode": decode_offsets(records, "prod"), "plain UDF": by_udf(records)}
    best: dict[str, Duration] = {}
    for number in range(rounds + 1):
        took = {name: measure(partial(discarded, table)) for name, table in ways.items()}
        if number:
            best = {name: Duration(*map(min, now, best.get(name, now))) for name, now in took.items()}
        told = ", ".join(f"{name} {now}" for name, now in took.items())
        print(f"round {number}: {told}, load {os.getloadavg()[0]:.1f}", flush=True)
    scan, decode, udf = best["scan"], best["decode"], best["plain UDF"]
    print(f"decode: {count / decode.wall:,.0f} records/s")
    print(f"  of the scan's speed: {scan.wall / decode.wall:.2f} by the clock, {scan.cpu / decode.cpu:.2f} by CPU")
    print(f"  of the plain UDF's:  {udf.wall / decode.wall:.1f} by the clock, {udf.cpu / decode.cpu:.1f} by CPU")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--records", type=int, default=2_000_000)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--master", default="local[2]")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        fill(path, options.records)
        spark = session(options.master)
        compare(spark, path, options.records, options.rounds)
        spark.stop()


if __name__ == "__main__":
    main()
