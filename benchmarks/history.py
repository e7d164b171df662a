"""Measures ``karrot history`` for 30 days of 500 groups: the query alone, and the whole process.

PYTHONPATH=tests python benchmarks/history.py [--days 30] [--groups 500] [--rounds 7]

DuckDB makes the tables, one sorted file per day with one large row group, like Spark. The yardstick is
DuckDB counting the rows of the same files in the same process, in turns.
"""

import argparse
import datetime as dt
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from deltalake import Field, Schema, convert_to_deltalake
from deltalake.schema import PrimitiveType
from harness.stopwatch import wall_seconds

from karrot.history.table_queries import History
from karrot.history.time_ranges import TimeRange
from karrot.history.time_series import METRICS

BEGIN = dt.datetime(2026, 10, 1, tzinfo=dt.UTC)
ROWS = """
SELECT 'prod-eu' AS cluster, 'group-' || lpad(g::VARCHAR, 3, '0') AS consumer,
  TIMESTAMP '{day}' + to_minutes(m) AS minute, 2::BIGINT AS count,
  lag AS lag_min, lag + 50 AS lag_max, (lag + 20)::DOUBLE AS lag_avg, lag + 7 AS lag_last,
  (lag % 900)::DOUBLE AS lag_seconds_max, CASE WHEN lag % 20 = 0 THEN 'WARN' ELSE 'OK' END AS worst_status,
  (lag % 20 = 0)::BIGINT AS not_ok
FROM (SELECT g, m, (hash(g * 1440 + m + {seed}) % 100000)::BIGINT AS lag FROM range({groups}) a(g), range(1440) b(m))
ORDER BY consumer, minute
"""
QUESTIONS = 300
PROCESS = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as directory:
        tables = Path(directory)
        made = wall_seconds(lambda: make(tables, asked.days, asked.groups))
        size = sum(file.stat().st_size for file in tables.rglob("*.parquet"))
        print(f"{asked.days} days of {asked.groups} groups: {size / 1e6:.0f} MB, made in {made:.0f} s")
        questions(tables, asked.days, asked.rounds)
        process(tables, asked.days, asked.rounds)


def make(tables: Path, days: int, groups: int) -> None:
    duck = duckdb.connect(config={"threads": 2})
    for number in range(days):
        day = (BEGIN + dt.timedelta(days=number)).date()
        place = tables / "lag_minute" / f"day={day}"
        place.mkdir(parents=True)
        rows = ROWS.format(day=day, groups=groups, seed=number)
        options = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 1000000"
        duck.execute(f"COPY ({rows}) TO '{place}/lag_minute.parquet' ({options})")
    convert_to_deltalake(
        tables / "lag_minute", partition_by=Schema([Field("day", PrimitiveType("date"))]), partition_strategy="hive"
    )


def questions(tables: Path, days: int, rounds: int) -> None:
    whole = TimeRange(BEGIN, BEGIN + dt.timedelta(days=days))
    hour, month = dt.timedelta(hours=1), dt.timedelta(days=days)
    every = tuple(name for name, metric in METRICS.items() if metric.table == "lag_minute")
    duck = duckdb.connect(config={"threads": 2})
    with History(tables) as history:
        asked = {
            "yardstick: DuckDB counts the rows of a group": lambda: duck.execute(
                f"SELECT count(*) FROM '{tables}/lag_minute/*/*.parquet' WHERE consumer = 'group-250'"
            ).fetchall(),
            "timeseries, by the minute": lambda: history.timeseries("group-250", whole),
            "timeseries, by the hour": lambda: history.timeseries("group-250", whole, granularity=hour),
            f"timeseries, {len(every)} metrics by the hour": lambda: history.timeseries(
                "group-250", whole, metrics=every, granularity=hour
            ),
            "timeseries, one day by the minute": lambda: history.timeseries(
                "group-250", TimeRange(whole.end - dt.timedelta(days=1), whole.end)
            ),
            "groups, one day": lambda: history.groups(TimeRange(whole.end - dt.timedelta(days=1), whole.end)),
            "groups, all days": lambda: history.groups(TimeRange(whole.end - month, whole.end), order="lag"),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
        for _ in range(rounds + 1):
            for name, ask in asked.items():
                before = time.process_time()
                wall = wall_seconds(ask)
                times[name].append((wall, time.process_time() - before))
    for name, each in times.items():
        wall, cpu = (statistics.median(column) * 1000 for column in zip(*each[1:], strict=True))
        limit = f" (at most {QUESTIONS} ms)" if name in ("timeseries, by the minute", "timeseries, by the hour") else ""
        print(f"{name:<46} {wall:>7.0f} ms, of CPU {cpu:>6.0f} ms{limit}")


def process(tables: Path, days: int, rounds: int) -> None:
    end = BEGIN + dt.timedelta(days=days)
    command = [sys.executable, "-m", "karrot", "history", "timeseries", "--tables", str(tables), "--group", "group-250"]
    command += ["--from", BEGIN.date().isoformat(), "--to", end.date().isoformat(), "--granularity", "1h", "--json"]

    def run() -> None:
        subprocess.run(command, check=True, capture_output=True)

    wall = statistics.median(wall_seconds(run) for _ in range(rounds))
    print(
        f"{'karrot history timeseries, the whole process':<46} {wall * 1000:>7.0f} ms (at most {PROCESS * 1000:.0f} ms)"
    )


if __name__ == "__main__":
    main()
