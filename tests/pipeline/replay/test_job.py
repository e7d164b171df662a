"""The whole job gives the results of the reference model, which gets the same commits, log ends and deletions."""

import datetime as dt
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from karrot.burrow.rules import evaluate_group
from karrot.cli import main
from karrot.cli.pipeline.replay import replayed_json, replayed_lines
from karrot.pipeline.replay.job import NothingToReplayError, ReplayRequest, replay, status_runs
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from support.burrow.burrow_storage import Storage
from support.pipeline.table_files import write_day

BEGIN_MS = int(dt.datetime(2026, 11, 20, 23, 30, tzinfo=dt.UTC).timestamp()) * 1000
MINUTES, EVERY, EXPIRE = 70, 60, 900
SETS = [RuleSet("burrow"), RuleSet("calm", 6, allowed_lag=40, min_distance=30), RuleSet("full", minimum_complete=1)]
PARTITIONS = {"orders": 3, "clicks": 2}
CONSUMERS = ("well", "stuck", "deleted", "silent", "rewound")
DELETED_AT = BEGIN_MS + 33 * 60_000

Row = dict[str, Any]


def commits(rng: Random) -> Iterator[Row]:
    """Yield commits of five consumers of two topics: healthy, stuck for a time, deleted, silent for long, rewound."""
    order = 0
    for second in range(-120, MINUTES * 60, 11):
        for consumer, topic, partition in itertools.product(CONSUMERS, PARTITIONS, range(3)):
            if (
                partition < PARTITIONS[topic]
                and (read := position(consumer, topic, partition, second, rng)) is not None
            ):
                order += 1
                at_ms = BEGIN_MS + second * 1000 + rng.randrange(9_000)
                yield {
                    "cluster": "c",
                    "consumer": consumer,
                    "topic": topic,
                    "partition": partition,
                    "offset": read,
                    "tombstone": False,
                    "commit_ts_ms": at_ms - rng.randrange(3) * 400,
                    "log_offset": order,
                    "log_ts_ms": at_ms,
                }


def position(consumer: str, topic: str, partition: int, second: int, rng: Random) -> int | None:
    """Return the offset that a consumer commits, if it commits."""
    read, minute = int(0.3 * second) + 1_000 - rng.randrange(5), second / 60
    if consumer == "deleted" and 32 <= minute < 50:
        return None
    if consumer == "silent" and (20 < minute < 62 or topic == "clicks"):
        return None
    if consumer == "stuck" and partition == 0 and 25 <= minute < 48:
        return 1_440
    return read - 400 if consumer == "rewound" and rng.random() < 0.05 else read


def log_ends() -> Iterator[Row]:
    for second in range(0, MINUTES * 60, 30):
        for topic, count in PARTITIONS.items():
            for partition in range(count):
                place = {"cluster": "c", "topic": topic, "partition": partition}
                yield place | {"end_offset": int(0.3 * second) + 1_000, "observed_at_ms": BEGIN_MS + second * 1000}


def write(tables: Path, name: str, rows: Iterable[Mapping[str, Any]], at: str) -> None:
    by_day: dict[dt.date, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_day.setdefault(dt.datetime.fromtimestamp(row[at] / 1000, dt.UTC).date(), []).append(row)
    for day, of_day in by_day.items():
        write_day(tables, name, day, of_day)


def by_the_model(rules: RuleSet, rows: list[Row], ends: list[Row]) -> dict[tuple[str, int], str]:
    """Return the status of each consumer at each evaluation at which Burrow knows it."""
    storage = Storage(intervals=rules.intervals, min_distance=rules.min_distance, expire_group=EXPIRE)
    # A Burrow that starts at the first log end sample then reads the earlier commits.
    waiting = [(end["observed_at_ms"], 0, end) for end in ends]
    waiting += [(max(BEGIN_MS, row["log_ts_ms"]), row["log_offset"], row) for row in rows]
    waiting = sorted([*waiting, (DELETED_AT, 0, {})], key=itemgetter(0, 1))[::-1]
    found: dict[tuple[str, int], str] = {}
    for now in range(BEGIN_MS // 1000, ends[-1]["observed_at_ms"] // 1000 + 1, EVERY):
        while waiting and waiting[-1][0] <= now * 1000:
            at_ms, _, row = waiting.pop()
            tell(storage, row, at_ms // 1000)
        for group in storage.groups():
            if (tracked := storage.fetch(group, now)) is not None:
                lag, share = rules.allowed_lag, rules.minimum_complete
                told = evaluate_group("c", group, tracked, now * 1000, allowed_lag=lag, minimum_complete=share)
                found[group, now] = told.status_text
    return found


def tell(storage: Storage, row: Row, now: int) -> None:
    if not row:
        storage.delete_group("deleted")
    elif "end_offset" in row:
        place = row["topic"], row["partition"], row["end_offset"]
        storage.put_log_end(*place, partition_count=PARTITIONS[row["topic"]])
    else:
        what = row["consumer"], row["topic"], row["partition"], row["offset"]
        storage.put_commit(*what, order=row["log_offset"], timestamp_ms=row["commit_ts_ms"], now=now)


def at_each_evaluation(statuses: list[Row]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for row in statuses:
        first, last = row["from_ms"] // 1000, row["to_ms"] // 1000
        stop = last + 1 if row["is_open"] else last
        found |= {(row["consumer"], now): row["status"] for now in range(first, stop, EVERY)}
    return found


def test_a_replay_gives_burrows_statuses(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "tables"))
    with pytest.raises(NothingToReplayError, match="has no commits: run karrot pipeline offsets"):
        replay(spark, tables, ReplayRequest(SETS))
    rows, ends = list(commits(Random(7))), list(log_ends())
    gone = {"cluster": "c", "consumer": "deleted", "log_ts_ms": DELETED_AT, "version": None}
    forgotten = {**rows[0], "tombstone": True, "offset": None, "commit_ts_ms": None, "log_offset": 10**9}
    strangers = [rows[0] | {"cluster": "d"}, rows[0] | {"consumer": "stranger", "log_offset": 10**6}]
    write(tmp_path / "tables", "commits", [*rows, *rows[100:300], forgotten, *strangers], "log_ts_ms")
    unread = {**ends[0], "topic": "unread"}
    write(tmp_path / "tables", "ends", [*ends, *ends[50:60], unread], "observed_at_ms")
    write(tmp_path / "tables", "members", [gone], "log_ts_ms")

    request = ReplayRequest(SETS, clusters=["c"], groups=CONSUMERS, every=EVERY, expire_group=EXPIRE)
    done = replay(spark, tables, request)

    statuses = status_runs(spark, tables, request)[0].toArrow().to_pylist()
    for number, each in enumerate(SETS):
        found = at_each_evaluation([row for row in statuses if row["rules"] == number])
        assert found == by_the_model(each, rows, ends), each.name
    assert done.groups == 5
    told = replayed_json(done)
    assert [(one["name"], one["incident_count"] > 0) for one in told["rule_sets"]] == [(one.name, True) for one in SETS]
    stuck = [one for one in told["standstills"] if one["consumer"] == "stuck"]
    assert [(one["from"][11:16], one["to"][11:16]) for one in stuck] == [("23:55", "00:18")]
    lines = list(replayed_lines(done))
    assert lines[0] == "5 groups from 2026-11-20 23:30 to 2026-11-21 00:39 UTC, judged every 1 min"
    json.dumps(told)


def test_invalid_options_are_refused_before_spark_starts(tmp_path: Path) -> None:
    def asked(*arguments: str) -> tuple[int, str]:
        ended = CliRunner().invoke(main, ["pipeline", "replay", "--tables", str(tmp_path), *arguments])
        return ended.exit_code, ended.stderr

    code, said = asked("--rules", "calm:interval=3")
    assert (code, said.startswith("karrot: --rules: 'interval' is not a rule of Burrow; the rules are intervals,")) == (
        2,
        True,
    )
    assert asked("--from", "2026-11-20T10:00", "--to", "2026-11-20") == (
        2,
        "karrot: --from 2026-11-20 10:00 is not before --to 2026-11-20 00:00\n",
    )
    assert asked("--every", "0s") == (
        2,
        "karrot: --every is '0s': it must be seconds, or a number with s, m, h or d, from 1s to 24h\n",
    )
