"""Measures the time of derive for ``lag_minute`` and after one late file; the yardstick is DuckDB on the same files.

PYTHONPATH=tests python benchmarks/derive.py [--rows 5000000] [--rounds 2] [--cores 2]

Writes ``--rows`` events of 2,315 groups, one every 10 s each, and a tenth of them; the yardstick runs in the same
process, in turns, on the same Parquet files. ``--rows 20000000`` is a day of them.
"""

import argparse
import datetime as dt
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import duckdb
from harness.stopwatch import Duration, measure, median_duration, wall_seconds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.derive.lag_minute import lag_minute
from karrot.pipeline.derive.rates_minute import rates_minute, whole_listings
from karrot.pipeline.derive.skew_minute import skew_minute
from karrot.pipeline.schemas_and_conversions import EVENTS, PARTITIONS, columns_of, piece_of, with_day
from karrot.pipeline.spark_session import session
from karrot.pipeline.store.table_files import SOURCES, Tables

GROUPS = 2_315
PARTITIONS_EACH = 3
BEGIN = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1_000)
QUERY = """
SELECT cluster, consumer, date_trunc('minute', received_at) AS minute, count(*), min(total_lag), max(total_lag),
  avg(total_lag), arg_max(total_lag, received_at_ms) FILTER (total_lag IS NOT NULL), max(lag_seconds),
  max(CASE status WHEN 'OK' THEN 1 WHEN 'WARN' THEN 2 ELSE 3 END), count(*) FILTER (status <> 'OK')
FROM read_parquet('{files}', hive_partitioning=true) GROUP BY ALL
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    asked = parser.parse_args()
    spark = session(f"local[{asked.cores}]", {"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        place = Path(directory)
        large = minutes(spark, place / "large", asked.rows, asked.rounds, asked.cores)
        small = minutes(spark, place / "small", asked.rows // 10, asked.rounds, asked.cores)
        print(f"ten times the rows: {large / small:.1f} times as long (at most 11)")
        late_file(spark, place / "week", asked.rows // 10)
        late_minutes(spark, place / "minutes", asked.rows // 2, asked.rounds)
        print(f"load {os.getloadavg()[0]:.1f}")
    spark.stop()


def minutes(spark: SparkSession, place: Path, rows: int, rounds: int, cores: int) -> float:
    """Derive ``lag_minute`` in turns with DuckDB; return Spark's median in seconds."""
    tables = Tables(str(place))
    tables.append(history(spark, rows, days=1), "events", "b-0")
    files = f"{place}/events/*/*/*.parquet"
    theirs, ours = [], []
    duck = duckdb.connect(config={"threads": cores})
    for _ in range(rounds + 1):
        theirs.append(wall_seconds(lambda: by_duckdb(duck, files, place / "duck.parquet")))
        ours.append(wall_seconds(lambda: by_spark(spark, tables, place / "spark.parquet")))
    # The first round compiles.
    mine, yardstick = statistics.median(ours[1:]), statistics.median(theirs[1:])
    told = f"{rows:>11,} rows to lag_minute: {mine:.1f} s, {rows / mine / 1e6:.2f} M rows/s (first {ours[0]:.1f} s)"
    print(f"{told}; DuckDB {yardstick:.1f} s; {mine / yardstick:.1f} times as long")
    shutil.rmtree(place)
    return mine


def late_file(spark: SparkSession, place: Path, rows: int) -> None:
    """Compare the time after one late event in one of seven derived days with a seventh of the time for all."""
    tables = Tables(str(place))
    tables.append(history(spark, rows, days=7), "events", "b-0")
    derive(spark, Tables(str(place)), DeriveRules(), on_progress=quietly)
    shutil.rmtree(place / "lag_minute")
    (place / "_derived.json").unlink()
    whole = wall_seconds(lambda: derive(spark, tables, DeriveRules(), on_progress=quietly))
    tables.append(history(spark, rows, days=7).limit(1).withColumn("seq", F.lit(0).cast("long")), "events", "b-1")
    again = wall_seconds(lambda: derive(spark, tables, DeriveRules(), on_progress=quietly))
    print(
        f"{rows:,} rows in 7 days, all tables: {whole:.1f} s; after one late event {again:.1f} s, "
        f"{again / (whole / 7):.1f} times a day's share"
    )


def late_minutes(spark: SparkSession, place: Path, rows: int, rounds: int) -> None:
    """Compare writing one day of each minute table again with a seventh of the time for all seven days."""
    tables = Tables(str(place))
    events = history(spark, rows, days=7)
    tables.append(events, "events", "b-0")
    tables.append(listings(events), "partitions", "b-0")
    days = tables.days(spark, "events")

    def made(name: str, some: list[dt.date]) -> DataFrame:
        heard, listed = (tables.read(spark, source, days=some) for source in SOURCES)
        if name == "lag_minute":
            return lag_minute(heard)
        whole = whole_listings(heard, listed)
        return skew_minute(whole) if name == "skew_minute" else rates_minute(whole, longest=DeriveRules().longest)

    def write(name: str, some: list[dt.date]) -> Duration:
        return measure(
            lambda: tables.replace_days(made(name, some).withColumn("piece", piece_of("minute")), name, some)
        )

    for name in ("lag_minute", "skew_minute", "rates_minute"):
        whole, one = zip(*((write(name, days), write(name, days[:1])) for _ in range(rounds + 1)), strict=True)
        share, again = median_duration(whole[1:]), median_duration(one[1:])
        print(
            f"{rows:,} rows in {len(days)} days, {name} alone: {again.wall:.1f} s for one day, "
            f"{again.wall / share.wall * len(days):.1f} times a day's share, by CPU "
            f"{again.cpu / share.cpu * len(days):.1f} times (at most 1.5)"
        )


def history(spark: SparkSession, rows: int, *, days: int, groups: int = GROUPS) -> DataFrame:
    """Make this number of events, evenly over the groups and days; one in ten is worse than OK."""
    number = F.col("id")
    received_ms = F.lit(BEGIN_MS) + F.floor(number * (days * 86_400_000 / rows))
    bad = F.pmod(F.floor(number / (groups * 60)) + F.pmod(number, F.lit(10)), F.lit(10)) == 0
    filled = {
        "event_id": F.concat(F.lit("log-"), number.cast("string")),
        "log_id": F.lit("log"),
        "seq": number + 1,
        "received_at": F.timestamp_millis(received_ms),
        "received_at_ms": received_ms,
        "observed_at": F.timestamp_millis(received_ms),
        "observed_at_ms": received_ms,
        "source": F.lit("webhook"),
        "cluster": F.lit("prod-eu"),
        "consumer": F.concat(F.lit("group-"), F.pmod(number, F.lit(groups)).cast("string")),
        "status": F.when(bad, "WARN").otherwise("OK"),
        "kind": F.when(bad, "incident").otherwise("observation"),
        "total_lag": F.pmod(F.hash("id"), F.lit(100_000)).cast("long"),
        "lag_seconds": F.pmod(F.hash("id"), F.lit(100)).cast("double"),
        "partition_count": F.lit(PARTITIONS_EACH).cast("long"),
    }
    empty = {field.name: F.lit(None).cast(field.dataType) for field in EVENTS if field.name not in filled}
    made = spark.range(rows).select(*(value.alias(name) for name, value in (filled | empty).items()))
    return made.withColumn("day", F.to_date("received_at")).select(*columns_of(with_day(EVENTS)))


def listings(events: DataFrame, *, groups: int = GROUPS) -> DataFrame:
    """Make the partitions of every fifth round of events: three of one topic, which the groups read evenly."""
    every_fifth = F.pmod(F.floor(F.col("seq") / groups), F.lit(5)) == 0
    filled = {
        "topic": F.lit("orders"),
        "partition": F.explode(F.sequence(F.lit(0), F.lit(PARTITIONS_EACH - 1))),
        "owner": F.lit("10.0.0.7"),
        "end_offset": F.col("seq") * 10,
        "current_lag": F.col("total_lag"),
    }
    of_event = [name for name in columns_of(with_day(PARTITIONS)) if name in events.columns and name not in filled]
    missing = {
        field.name: F.lit(None).cast(field.dataType)
        for field in PARTITIONS
        if field.name not in of_event and field.name not in filled
    }
    added = (value.alias(name) for name, value in (filled | missing).items())
    return events.where(every_fifth).select(*of_event, *added).select(*columns_of(with_day(PARTITIONS)))


def quietly(_line: str) -> None:
    """Ignore the progress."""


def by_spark(spark: SparkSession, tables: Tables, to: Path) -> None:
    lag_minute(tables.read(spark, "events")).write.mode("overwrite").parquet(str(to))


def by_duckdb(duck: duckdb.DuckDBPyConnection, files: str, to: Path) -> None:
    duck.execute(f"COPY ({QUERY.format(files=files)}) TO '{to}' (FORMAT parquet, COMPRESSION zstd)")


if __name__ == "__main__":
    main()
