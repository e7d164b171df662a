"""Every row of every table that derive makes from verdicts, commits and log ends, against plain Python."""

import datetime as dt
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.derive.partition_lag_minute import left_times
from karrot.pipeline.derive.rebalances import FOREVER_MS, TopicsRead
from karrot.pipeline.derive.tables_from_commits import DayHandover, PartitionLagJob, hand_on
from karrot.pipeline.store.compact_and_expire import compact
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_of_row, event_row, write_events
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.commits import assignments_of, commits_of, log_ends_of
from support.pipeline.expected_tables.comparison import assert_equal_tables
from support.pipeline.offset_rows import commit_row, log_end_row, member_rows
from support.pipeline.row_times import MIDNIGHT
from support.pipeline.table_files import files_of, write_rows
from support.pipeline.verdict_scenarios import verdict_scenarios

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine

DAYS = [MIDNIGHT.date(), MIDNIGHT.date() + dt.timedelta(days=1)]
_A_DAY = 86_400
_MOST = 2**63 - 1

Rows = list[dict[str, Any]]


def _ask(tables: Tables, name: str, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    """Read some columns of a table with another engine, sorted."""
    files = files_of(Path(tables.directory), name)
    asked = f"SELECT {', '.join(columns)} FROM read_parquet({files}, hive_partitioning=true) WHERE {where}"
    with duckdb.connect() as connection:
        return connection.execute(f"{asked} ORDER BY ALL").fetchall()


ENDS: Rows = [
    *(log_end_row(seconds, 2 * seconds) for seconds in (*range(0, 151, 30), _A_DAY + 30)),  # two messages per second
    log_end_row(30, 5, partition=1),  # these partitions have messages but no commits
    log_end_row(30, 0, partition=2),  # these partitions have no messages
    *(log_end_row(seconds, 1_000, "old") for seconds in (60, 120)),
    *(
        log_end_row(seconds, ended, "created again")
        for seconds, ended in ((0, 10), (30, 90), (60, 20), (90, 40), (120, 100))
    ),
    *(log_end_row(seconds, 10 * seconds, "even") for seconds in range(0, 600, 20)),
    *(log_end_row(seconds, _MOST, "edge", partition) for seconds in (0, 60) for partition in range(3)),
    *(log_end_row(seconds, ended, "edge", 3) for seconds, ended in ((0, -_MOST), (60, _MOST))),
]
COMMITS: Rows = [
    commit_row(45, "reader", 70),
    commit_row(50, "reader", 100),
    commit_row(75, "reader", 120),
    commit_row(70, "late", 500, "old"),
    commit_row(20, "ahead", 500),
    commit_row(20, "gone", 30),
    commit_row(80, "gone", None),
    commit_row(100, "created again", 30, "created again"),
    commit_row(10, "heard", 20),
    commit_row(10, "half heard", 20),
    commit_row(40, "unseen", 7, "unseen"),
    commit_row(40, "hardly seen", 7, "unseen"),
    commit_row(40, "hardly seen", 20),
    *(commit_row(seconds, "even", 8 * seconds, "even") for seconds in range(5, 600, 10)),
    commit_row(20, "edge", -_MOST - 1, "edge"),
    *(commit_row(30, "edge", 0, "edge", partition) for partition in (1, 2, 3)),
    commit_row(80, "edge", _MOST, "edge"),
    *(commit_row(seconds, "edge", offset, "edge", 4) for seconds, offset in ((1, _MOST), (2, 9), (3, -_MOST))),
]
MEMBERS: Rows = [
    *member_rows(5, "reader", 3, {"a": [0]}),
    *member_rows(6, "reader", 3, {"a": [0]}),
    *member_rows(70, "reader", 4, {"a": [1], "b": [0]}),
    *member_rows(200, "reader", 5, {}),
]


def _listed(consumer: str, seconds: float, committed: int, lag: int, topic: str = "t", *, of: int = 1) -> Rows:
    one = {"topic": topic, "partition": 0, "end_offset": committed, "current_lag": lag}
    return [event_row(seconds, "warn", "i", consumer=consumer, total_lag=lag, partition_count=of, listed=[one])]


EVENTS: Rows = [
    *_listed("heard", 30, 21, 9),
    *_listed("half heard", 30, 22, 8, of=2),
    *_listed("hardly seen", 30, 22, 6, of=3),
    # Burrow's verdicts on the group "even", under another name: the newest commit against the newest log end.
    *(
        each
        for seconds in range(30, 600, 30)
        for each in _listed("told", seconds, 8 * (seconds - 5), 10 * (seconds // 20 * 20) - 8 * (seconds - 5), "told")
    ),
    *_listed("verdict on the edge", 30, _MOST, 2**53 - 1, "verdict on the edge"),
    *_listed("verdict on the edge", 60, -_MOST, 5, "verdict on the edge"),
    *_listed("verdict on the edge", 90, _MOST - 5, 5, "verdict on the edge"),
    *verdict_scenarios(),
]


def test_every_table_has_the_rows_that_plain_python_makes_from_verdicts_commits_and_log_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(str(tmp_path))
    write_rows(tmp_path, "ends", ENDS, batch="b-0")
    write_rows(tmp_path, "commits", COMMITS, batch="b-0")
    write_rows(tmp_path, "commits", COMMITS[:3], batch="b-1")  # read again from the beginning
    write_rows(tmp_path, "members", MEMBERS, batch="b-0")
    write_events(tmp_path, "b-0", EVENTS)
    assert derive(spark, tables, DeriveRules()) == DAYS

    _check_every_row(tables)
    _check_parity(tables)
    # The scenarios still show what their names say.
    assert _ask(tables, "incidents", "DISTINCT ended_by", where="consumer NOT IN ('even', 'told')") == [
        *(("close",), ("deleted",), ("new_incident",), ("recovered",), ("silence",), (None,))
    ]
    assert _ask(tables, "skew_minute", "DISTINCT cause") == [("hot_partition",), ("slow_owner",), (None,)]
    assert _ask(tables, "partition_lag_minute", "DISTINCT method") == [("interpolated",), ("observed",), ("unknown",)]
    # The second day has a log end sample, and begins with the state from the end of the first day.
    next_day = "day = '2026-11-21' AND consumer IN ('reader', 'gone')"
    assert _ask(tables, "partition_lag_minute", "consumer", "lag", "lag_seconds", "method", where=next_day) == [
        ("reader", 172_740, 86_370.0, "observed")
    ]
    assert derive(spark, tables, DeriveRules()) == []


_LOGS = [(topic, partition) for topic in "abcd" for partition in range(2)]
_BEGIN, _STOP = _A_DAY - 1_800, _A_DAY + 1_800


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 9))])
def test_random_groups_have_the_rows_that_plain_python_makes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """An hour around midnight: gaps, topics that were created again or trimmed, and groups that come, go and stall."""
    random = Random(seed)
    ends, events = _random_log_ends(random)
    commits, members = _random_groups(random)
    for name, rows in (("ends", ends), ("commits", commits), ("members", members)):
        write_rows(tmp_path, name, rows, batch="b-0")
    write_events(tmp_path, "b-0", events)
    derive(spark, Tables(str(tmp_path)), DeriveRules())

    records = Records(commits_of(commits), log_ends_of(ends), assignments_of(members))
    expected = derived_tables([*map(event_of_row, events)], records, Rules())
    of_commits = ("partition_lag_minute", "lag_minute", "rates_minute", "skew_minute", "rebalances")
    counts = assert_equal_tables(tmp_path, {name: expected[name] for name in of_commits})
    assert min(counts.values()) > 10
    states = {row["state"] for row in expected["partition_lag_minute"]}
    assert states == {"BEYOND_END", "LEFT", "NEVER_COMMITTED", None}


def _random_log_ends(random: Random) -> tuple[Rows, Rows]:
    """Make polls of most partitions, and events that list some partitions, often late and in the wrong order."""
    ends, events = Rows(), Rows()
    for number, (topic, partition) in enumerate(_LOGS):
        is_polled, end, start = number % 4 != 3, random.randrange(500), 0
        for second in range(_BEGIN, _STOP, 40):
            at = second + random.randrange(30)
            end = random.randrange(50) if random.random() < 0.02 else end + random.choice([0, 20, 400])
            start = end if end < start or random.random() < 0.03 else start
            if random.random() < 0.1 or (number == 1 and second % 1_500 < 800):
                continue
            if is_polled:
                ends.append(log_end_row(at, end, topic, partition, start=start))
            if not is_polled or random.random() < 0.1:
                one = {"topic": topic, "partition": partition, "end_offset": end - 30, "current_lag": 30}
                late = random.choice([0, 0, 5, 70])
                events.append(event_row(at, "ok", consumer="e", late=late, partition_count=2, listed=[one]))
    return ends, events


def _random_groups(random: Random) -> tuple[Rows, Rows]:
    """Make the commits and members of six groups. One commits only on some partitions, two have no members."""
    commits, members = Rows(), Rows()
    for consumer in map(str, range(6)):
        read, has_members = random.sample(_LOGS, 4), consumer < "4"
        for topic, partition in read[consumer == "0" :]:
            offset, stalls_at = random.randrange(600), random.randrange(_BEGIN, _STOP + 7_200)
            for second in range(_BEGIN, min(stalls_at, _STOP), random.choice([15, 50, 700])):
                offset = max(0, offset + random.choice([0, 10, 80, 80, -50]))
                committed = None if not has_members and random.random() < 0.02 else offset
                commits.append(commit_row(second + random.randrange(15), consumer, committed, topic, partition))
        at = _BEGIN - 100
        for generation in range(8 if has_members else 0):
            topics = random.choice(["abcd", "abcd", "ab", "cd", ""])
            owned = [place for place in read if place[0] in topics]
            members += member_rows(at, consumer, generation, {"x": owned[::2], "y": owned[1::2]} if topics else {})
            at += random.choice([0, 30, 90, 120, 1_500]) + random.randrange(30)
    return commits, members


def test_a_changed_state_at_the_end_of_a_day_changes_the_next_day() -> None:
    days = [MIDNIGHT.date() + dt.timedelta(days=number) for number in (0, 1, 4, 5)]
    before = dict(zip(days, "abcd", strict=True))

    def derived(touched: list[dt.date], now: str, before: dict[dt.date, str] | None) -> list[dt.date]:
        return [*hand_on(touched, days, before, lambda day, _: DayHandover(now[days.index(day)]))]

    assert derived(days[:1], "abcd", before) == days[:1]
    assert derived(days[:1], "xbcd", before) == days[:2]
    assert derived(days[:2], "xycd", before) == days[:3]
    assert derived(days[2:], "abxy", before) == days[2:]
    assert derived(days[:1], "abcd", {}) == days
    assert derived(days[:1], "xyz!", None) == days[:1]


@pytest.mark.deep
def test_after_compact_a_late_commit_that_changes_nothing_later_changes_only_its_own_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    days = [MIDNIGHT.date() + dt.timedelta(days=number) for number in range(3)]
    for batch, second in enumerate((40_000, 50_000)):
        seconds = [number * _A_DAY + second for number in range(len(days))]
        write_rows(tmp_path, "commits", [commit_row(each, "reader", each) for each in seconds], batch=f"b-{batch}")
        write_rows(tmp_path, "ends", [log_end_row(each, each) for each in seconds], batch=f"b-{batch}")
    tables = Tables(str(tmp_path))
    assert derive(spark, tables, DeriveRules()) == days
    today = days[-1] + dt.timedelta(days=1)
    merged = str(compact(spark, tables, keep=dt.timedelta(days=30), today=today))
    assert merged.startswith("merged 12 files into 6")
    write_rows(tmp_path, "commits", [commit_row(45_000, "reader", 45_000)], batch="late")
    assert derive(spark, tables, DeriveRules()) == days[:1]
    write_rows(tmp_path, "ends", [log_end_row(60_000, 70_000)] * 2, batch="late")  # delivered twice
    assert derive(spark, tables, DeriveRules()) == days[:2]


def test_a_topic_is_left_only_after_the_members_have_read_others_for_long_enough() -> None:
    other, nothing = frozenset({"other"}), frozenset[str]()
    read = [
        TopicsRead(0, 60_000, other),
        TopicsRead(60_000, 500_000, nothing),
        TopicsRead(500_000, 560_000, other),
        TopicsRead(560_000, FOREVER_MS, nothing),
    ]
    assert [*left_times(read, "t")] == [(0, 60_000, 0), (500_000, FOREVER_MS, 0)]


def test_an_owner_lasts_for_thirty_days_and_a_late_record_changes_it_on_each_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers, groups = [0, 29, 30, 31], ("settled", "static", "deleted")
    days, later = [MIDNIGHT.date() + dt.timedelta(days=number) for number in numbers], 29 * _A_DAY
    commits = [commit_row(number * _A_DAY + 60, name, 7) for number in numbers[1:] for name in groups]
    members = [
        *member_rows(10, "settled", 7, {"a": [0]}),
        *(row | {"instance_id": "same"} for row in member_rows(10, "static", 1, {"a": [0, 1]})),
        *(row | {"instance_id": "same"} for row in member_rows(later, "static", 2, {"b": [0, 1]})),
        *member_rows(10, "deleted", 1, {"a": [0]}),
        *(row | {"generation": None, "protocol": None} for row in member_rows(later, "deleted", 1, {})),
        *member_rows(later + _A_DAY + 50, "deleted", 1, {"a": [0]}),
    ]
    write_rows(tmp_path, "commits", commits, batch="b-0")
    write_rows(tmp_path, "members", members, batch="b-0")
    tables = Tables(str(tmp_path))
    job = PartitionLagJob(spark, tables, DeriveRules().longest)

    def check(derived: Collection[dt.date], members: Rows) -> None:
        records = Records(commits_of(commits), [], assignments_of(members))
        expected = derived_tables([], records, Rules())
        made = ("partition_lag_minute", "rebalances")
        assert_equal_tables(tmp_path, {name: expected[name] for name in made})
        assert [*derived] == days

    handed = job.derive(dict.fromkeys(days, 0), {}, None)
    check(handed, members)
    late = member_rows(20, "settled", 8, {"late": [0]})
    write_rows(tmp_path, "members", late, batch="b-1")
    marks = {day: handover.mark for day, handover in handed.items()}
    check(job.derive({days[0]: 0}, marks, None), [*members, *late])
    settled = _ask(tables, "partition_lag_minute", "owner", where="consumer = 'settled'")
    assert settled == [("/late",), ("/late",), (None,)]


def test_earlier_rebalances_of_a_group_add_no_rows_to_the_shuffles_of_a_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    last, rebalances = 6, 50

    def shuffled(days: range) -> int:
        path = tmp_path / f"{len(days)} days"
        for at in (number * _A_DAY for number in days):
            records = (member_rows(at + each, "reader", each, {"a": [0, 1], "b": [2]}) for each in range(rebalances))
            write_rows(path, "members", [row for rows in records for row in rows], batch=f"b-{at}")
        write_rows(path, "commits", [commit_row(last * _A_DAY + each, "reader", each) for each in range(rebalances)])
        before = _rows_shuffled(spark).keys()
        job = PartitionLagJob(spark, Tables(str(path)), DeriveRules().longest)
        day = MIDNIGHT.date() + dt.timedelta(days=last)
        assert job.derive({day: 0}, None, None)
        return sum(rows for stage, rows in _rows_shuffled(spark).items() if stage not in before)

    of_two_days, of_all_days = shuffled(range(last - 1, last + 1)), shuffled(range(last + 1))
    assert rebalances < of_two_days <= of_all_days < of_two_days + rebalances


def _rows_shuffled(spark: SparkSession) -> dict[int, int]:
    """The number of rows that each of Spark's last 1,000 stages has written for a shuffle."""
    gateway: Any = spark.sparkContext._gateway
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    no_numbers, no_statuses = gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
    found = context.statusStore().stageList(None, False, False, no_numbers, no_statuses)
    stages = [found.apply(number) for number in range(found.size())]
    return {stage.stageId(): stage.shuffleWriteRecords() for stage in stages}


def _check_every_row(tables: Tables) -> None:
    """All derived tables equal those that plain Python makes from the same records."""
    events = [*map(event_of_row, EVENTS)]
    records = Records(commits_of(COMMITS), log_ends_of(ENDS), assignments_of(MEMBERS))
    assert_equal_tables(Path(tables.directory), derived_tables(events, records, Rules()))


def _check_parity(tables: Tables) -> None:
    """The two lags differ at most by the messages that pass between two commits or log end samples."""
    by_commits, by_events = (
        dict(_ask(tables, "lag_minute", "minute", "lag_last", where=f"consumer = '{name}'"))
        for name in ("even", "told")
    )
    assert by_commits.keys() == by_events.keys()
    assert len(by_commits) == 10
    tolerance = 10 * (20 + 10)  # messages per second, times the interval between samples and commits
    assert all(abs(by_commits[at] - by_events[at]) <= tolerance for at in by_commits)
    assert by_commits[max(by_commits)] > 1_000
    speeds = "round(produce_rate)", "round(consume_rate)"
    whole = "consumer IN ('even', 'told') AND coverage = 1"
    assert {
        row[1:] for row in _ask(tables, "rates_minute", "consumer", *speeds, where=f"{whole} AND consumer = 'even'")
    } == {(10.0, 8.0)}
