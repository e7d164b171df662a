"""The offsets of groups at a moment, from the records of ``__consumer_offsets`` and samples of log ends."""

from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from karrot.history.answers_and_errors import (
    GroupDescription,
    HistoryError,
    PartitionDescription,
    StalePartition,
    UnclearGroup,
)
from karrot.history.duckdb_reader import TablesAtOneTime
from karrot.history.table_queries import History
from support.pipeline import stale_partition_cases
from support.pipeline.row_times import minute_at, second_at
from support.pipeline.table_files import write_rows

HOUR, DAY = 60, 1440
_POSITIONS = count(1)


def record(at: float, offset: int | None, partition: int = 0, **columns: Any) -> dict[str, Any]:
    """Return a row of ``commits`` of group ``g``, topic ``t``, minutes after midnight; a tombstone has no offset."""
    written = minute_at(at)
    row = {
        "cluster": "c",
        "consumer": "g",
        "topic": "t",
        "partition": partition,
        "offset": offset,
        "tombstone": offset is None,
        "log_partition": 3,
        "log_offset": next(_POSITIONS),
        "log_ts": written,
        "log_ts_ms": round(written.timestamp() * 1_000),
        "day": written.date(),
    }
    return row | columns


def look(at: float, end: int, partition: int = 0, start: int = 0, **columns: Any) -> dict[str, Any]:
    """Return a row of ``ends``."""
    seen = minute_at(at)
    row = {"cluster": "c", "topic": "t", "partition": partition, "start_offset": start, "end_offset": end}
    return row | {"observed_at": seen, "observed_at_ms": round(seen.timestamp() * 1_000)} | columns


def members(at: float, *assigned: tuple[str, str | None, int | None], **columns: Any) -> list[dict[str, Any]]:
    """Return the rows of ``members`` of one record: a member's name, its topic and its partition."""
    written = minute_at(at)
    shared = {
        "cluster": "c",
        "consumer": "g",
        "version": 3,
        "log_partition": 3,
        "log_offset": next(_POSITIONS),
        "log_ts": written,
        "log_ts_ms": round(written.timestamp() * 1_000),
    } | columns
    rows = [
        {"member_id": f"{name}-id", "client_id": name, "client_host": f"/{name}", "topic": topic, "partition": number}
        for name, topic, number in assigned
    ]
    return [shared | row for row in rows or [{"member_id": None}]]


# Describe


def test_a_group_is_described_at_a_moment_with_the_data_known_then(tables: Path, history: History) -> None:
    twice = record(600, 40)
    write_rows(
        tables,
        "commits",
        [
            record(-3 * DAY, 7, partition=1),
            record(500, 30),
            twice,
            twice,
            record(550, 90, partition=2),
            record(551, None, partition=2),
            record(602, 55, partition=4),
            record(700, 99),
            record(600, 1, consumer="other"),
        ],
        batch="a-000001",
    )
    write_rows(tables, "commits", [twice], batch="a-000002")
    write_rows(
        tables,
        "ends",
        [*(look(at, at // 10, partition) for partition in (0, 2, 3) for at in (590, 601, 800)), look(601, 50, 4)],
    )
    write_rows(
        tables,
        "members",
        [
            *members(400, ("old", "t", 0)),
            *members(500, ("a", "t", 0), ("a", "t", 3), ("b", "t", 1), ("idle", None, None)),
            *members(500, ("x", "t", 0), consumer="other"),
            *members(900),
        ],
    )
    asked = history.describe("g", minute_at(610))
    assert asked == GroupDescription(
        "c",
        "g",
        minute_at(610),
        lag=20,
        unknown_lags=2,
        never_committed=2,
        members=3,
        partitions=(
            PartitionDescription("t", 0, 40, 60, 20, "a-id", "/a", "a", minute_at(600), minute_at(601)),
            PartitionDescription("t", 1, 7, None, None, "b-id", "/b", "b", minute_at(-3 * DAY), None),
            PartitionDescription("t", 3, None, 60, None, "a-id", "/a", "a", None, minute_at(601)),
            PartitionDescription("t", 4, 55, 50, 0, None, None, None, minute_at(602), minute_at(601)),
        ),
    )
    later = history.describe("g", minute_at(1000), look_back=timedelta(days=1))
    assert later is not None
    assert [(each.partition, each.current_offset, each.log_end_offset) for each in later.partitions] == [
        (0, 99, 80),
        (4, 55, 50),
    ]
    assert (later.lag, later.unknown_lags, later.members) == (0, 1, 0)  # 99 is past the later log end 80
    assert history.describe("g", minute_at(-4 * DAY)) is None
    assert history.describe("nobody", minute_at(610)) is None


def test_the_lag_of_an_offset_past_a_later_log_end_is_unknown_and_not_zero(tables: Path, history: History) -> None:
    write_rows(tables, "commits", [record(600, 90), record(602, 90, partition=1)])
    write_rows(tables, "ends", [look(601, 40), look(601, 40, partition=1)])
    group = history.describe("g", minute_at(610))
    assert group is not None
    assert (group.lag, group.unknown_lags) == (0, 1)
    assert [each.lag for each in group.partitions] == [None, 0]  # the second log end is older than the commit


def test_the_lag_of_an_expiring_offset_past_a_later_log_end_is_unknown(tables: Path, history: History) -> None:
    write_rows(tables, "commits", [record(-60, 90, expire_ts_ms=round(minute_at(30).timestamp() * 1_000))])
    write_rows(tables, "ends", [look(-30, 40)])
    [risk] = history.risks(minute_at(0), within=timedelta(days=1)).risks
    assert (risk.kind, risk.lag) == ("expires", None)


def test_a_group_in_two_clusters_needs_its_cluster_and_a_group_without_members_has_no_owners(
    tables: Path, history: History
) -> None:
    write_rows(tables, "commits", [record(1, 5), record(1, 6, cluster="d")])
    with pytest.raises(UnclearGroup, match="'g' is in the clusters c, d"):
        history.describe("g", minute_at(2))
    chosen = history.describe("g", minute_at(2), cluster="d")
    assert chosen is not None
    assert (chosen.members, [each.current_offset for each in chosen.partitions]) == (None, [6])


def test_the_members_of_a_group_with_another_protocol_are_unknown(tables: Path, history: History) -> None:
    """A group that moves to the KIP-848 protocol gets a tombstone for its classic metadata."""
    write_rows(tables, "members", [*members(1, ("a", "t", 0)), *members(2, version=None)])
    write_rows(tables, "commits", [record(1, 5), record(3, 6)])
    before, after = (history.describe("g", minute_at(at)) for at in (1, 4))
    assert before is not None
    assert after is not None
    assert [(each.members, each.partitions[0].client_id) for each in (before, after)] == [(1, "a"), (None, None)]


def test_without_kafkas_records_a_group_is_described_from_events_that_list_all_partitions(
    tables: Path, history: History
) -> None:
    def told(at: float, offset: int, lag: int | None, number: int = 0, source: str = "rest", **columns: Any) -> Any:
        event = {"event_id": f"e-{at}", "received_at": minute_at(at), "observed_at": minute_at(at), "source": source}
        place = {"cluster": "c", "consumer": "g", "topic": "t", "partition": number}
        known = {"owner": "/10.1.2.3", "client_id": "", "end_offset": offset, "current_lag": lag}
        return event | place | known | {"end_ts": minute_at(at - 1)} | columns

    by_webhook = [told(9, 99, 1, source="webhook")]
    write_rows(tables, "partitions", [told(4, 10, 2), told(8, 20, 5), told(8, 30, None, 1), *by_webhook])
    described = history.describe("g", minute_at(10))
    assert described is not None
    assert (described.lag, described.unknown_lags, described.never_committed, described.members) == (5, 1, 0, None)
    assert described.partitions == (
        PartitionDescription("t", 0, 20, 25, 5, None, "/10.1.2.3", None, minute_at(7), minute_at(8)),
        PartitionDescription("t", 1, 30, None, None, None, "/10.1.2.3", None, minute_at(7), minute_at(8)),
    )
    write_rows(tables, "commits", [record(9, 97)])
    [partition] = (history.describe("g", minute_at(10)) or described).partitions
    assert (partition.current_offset, partition.log_end_offset, partition.lag) == (97, 100, 3)


def test_values_that_burrow_misread_are_shown_unchanged(tables: Path, history: History) -> None:
    place = {"cluster": "c", "consumer": "g", "topic": "t", "partition": 0, "source": "rest"}
    misread = {"end_offset": 2**63 - 1, "current_lag": 2, "end_ts_ms": 7_850_000_000_000_000_000}
    write_rows(tables, "partitions", [{"event_id": "e", "observed_at": minute_at(9)} | place | misread])
    [partition] = history.describe("g", minute_at(10)).partitions  # type: ignore[union-attr]
    assert (partition.log_end_offset, partition.committed_at) == (2**63 + 1, None)
    write_rows(tables, "commits", [record(9, 97)])
    [partition] = history.describe("g", minute_at(10)).partitions  # type: ignore[union-attr]
    assert (partition.log_end_offset, partition.lag) == (2**63 + 1, 2**63 - 96)


def test_without_commits_the_job_that_lands_them_is_named(tables: Path, history: History) -> None:
    write_rows(tables, "ends", [look(0, 5)])
    with pytest.raises(HistoryError, match="has no table commits: run karrot pipeline offsets"):
        history.describe("g", minute_at(0))


# Stale


def test_stale_partitions_are_those_that_the_stream_alerts_on(tables: Path, history: History) -> None:
    write_rows(tables, "commits", stale_partition_cases.commit_rows())
    write_rows(tables, "ends", stale_partition_cases.end_rows())
    at, length = (
        second_at(stale_partition_cases.EVALUATED_AT),
        timedelta(seconds=stale_partition_cases.STALE_AFTER),
    )
    expected = [
        StalePartition(
            stale_partition_cases.CLUSTER,
            case.name,
            case.name,
            stale_partition_cases.PARTITION,
            case.stale.offset,
            case.stale.end,
            second_at(case.stale.since),
            second_at(case.stale.seen),
        )
        for case in sorted(stale_partition_cases.CASES)
        if case.stale
    ]
    found = history.stale(at, length)
    assert list(found.partitions) == expected
    assert (found.at, found.looked_at) == (at, max(each.looked_at for each in expected))
    name = "went back and forth"
    assert history.stale(at, length, group=name).partitions == ()
    [one] = history.stale(at, length, group=expected[0].group, cluster=stale_partition_cases.CLUSTER).partitions
    assert one == expected[0]


def test_a_partition_that_moves_while_the_tables_are_listed_is_not_stale(
    tables: Path, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream can commit a batch at any time: here, it does after the first table was listed."""
    write_rows(tables, "commits", [record(at, 5, partition) for at in (1, 2) for partition in (0, 1)], batch="b-1")
    write_rows(tables, "ends", [look(at, 9, partition) for at in (3, 60) for partition in (0, 1)], batch="b-1")
    days, listed = TablesAtOneTime.days, list[str]()

    def days_and_commit(answer: TablesAtOneTime, table: str, *asked: Any) -> tuple[date, ...]:
        found = days(answer, table, *asked)
        if not listed:
            write_rows(tables, "commits", [record(119, 9, 0)], batch="b-2")
            write_rows(tables, "ends", [look(120, 99, partition) for partition in (0, 1)], batch="b-2")
        listed.append(table)
        return found

    monkeypatch.setattr(TablesAtOneTime, "days", days_and_commit)
    found = history.stale(minute_at(120), timedelta(minutes=30))
    assert [(each.partition, each.since) for each in found.partitions] == [(1, minute_at(1))]


# Risks


def risks_of(history: History, at: float = 0, **asked: Any) -> list[tuple[str, float, str, int, int | None, str]]:
    return [
        (
            each.kind,
            (each.at - minute_at(0)) / timedelta(minutes=1),
            each.group,
            each.partition,
            each.margin,
            each.because,
        )
        for each in history.risks(minute_at(at), **asked).risks
    ]


def test_offsets_expire_when_kafka_would_delete_them(tables: Path, history: History) -> None:
    week = 7 * DAY
    never = {"expire_ts_ms": 2**63 - 1}
    rows = [
        record(-week + HOUR, 1, consumer="assigns"),
        record(-week - HOUR, 1, consumer="overdue"),
        record(-week + 30 * HOUR, 1, consumer="has time"),
        record(-week + HOUR, 1, consumer="lives on"),
        record(-week + HOUR, 1, consumer="half unsubscribed", topic="was"),
        record(-week + HOUR, 1, consumer="half unsubscribed", topic="is"),
        record(-DAY, 1, consumer="left long ago"),
        record(-week + HOUR, 1, consumer="left lately"),
        record(-HOUR, 1, consumer="expiry written", expire_ts_ms=round(minute_at(2 * HOUR).timestamp() * 1_000)),
        record(-week + HOUR, 1, consumer="never", **never),
        record(-week + HOUR, 1, consumer="was gone"),
    ]
    write_rows(tables, "commits", rows)
    record_of = [
        members(-week, ("a", "t", 0), consumer="lives on"),
        members(-week, ("a", "is", 0), consumer="half unsubscribed"),
        members(-week + 3 * HOUR, consumer="left long ago"),
        members(-HOUR, consumer="left lately"),
        members(-week, consumer="was gone", version=None),
    ]
    write_rows(tables, "members", [row for rows in record_of for row in rows])
    assert risks_of(history) == [
        ("expires", -HOUR, "overdue", 0, None, "no commit since"),
        ("expires", HOUR, "assigns", 0, None, "no commit since"),
        ("expires", HOUR, "half unsubscribed", 0, None, "not subscribed"),
        ("expires", HOUR, "was gone", 0, None, "no commit since"),
        ("expires", 2 * HOUR, "expiry written", 0, None, "expire_ts"),
        ("expires", 3 * HOUR, "left long ago", 0, None, "no members since"),
    ]
    assert {row[2] for row in risks_of(history, within=timedelta(hours=31))} - {
        row[2] for row in risks_of(history)
    } == {"has time"}
    assert risks_of(history, retention=timedelta(days=8), group="assigns") == []
    [topic] = {each.topic for each in history.risks(minute_at(0), group="half unsubscribed").risks}
    assert topic == "was"


def test_missing_tables_are_named_and_unknown_members_make_no_offset_expire(tables: Path, history: History) -> None:
    week = 7 * DAY
    expires = {"expire_ts_ms": round(minute_at(HOUR).timestamp() * 1_000)}
    write_rows(tables, "commits", [record(-week + HOUR, 1), record(-HOUR, 1, consumer="expiry written", **expires)])
    alone = [("expires", HOUR, "expiry written", 0, None, "expire_ts")]
    assert (risks_of(history), history.risks(minute_at(0)).unknown) == (alone, ("log ends", "members"))
    verdict = {"source": "rest", "topic": "t", "partition": 0, "end_offset": 1, "current_lag": 4}
    heard = {"cluster": "c", "consumer": "g", "received_at": minute_at(-1), "observed_at": minute_at(-1)}
    write_rows(tables, "partitions", [heard | verdict])
    assert history.risks(minute_at(0)).unknown == ("log starts", "members")
    write_rows(tables, "ends", [look(-1, 5)])
    assert history.risks(minute_at(0)).unknown == ("members",)
    write_rows(tables, "members", members(-week, ("a", "t", 0)))
    assert history.risks(minute_at(0)).unknown == ()
    assert [row[:3] for row in risks_of(history)] == [row[:3] for row in alone]


def test_a_deleted_offset_is_a_risk_while_its_topic_grows(tables: Path, history: History) -> None:
    write_rows(
        tables,
        "commits",
        [row for partition in range(4) for row in (record(-500, 10, partition), record(-400, None, partition))],
    )
    grows = [look(at, 1000 + at, 0) for at in range(-600, 1, 100)]
    rests = [look(at, 1000, 1) for at in range(-600, 1, 100)]
    gone = [look(at, 9000 + at, 2) for at in range(-3 * DAY, -2 * DAY, 100)]
    write_rows(tables, "ends", [*grows, *rests, *gone])
    [risk] = history.risks(minute_at(0)).risks
    assert (risk.kind, risk.partition, risk.offset, risk.lag, risk.margin) == ("deleted", 0, 10, 990, 10)
    assert risk.at == minute_at(-400)


def test_a_small_margin_to_the_log_start_is_a_risk_if_messages_are_unread(tables: Path, history: History) -> None:
    reads = [record(at, 2 * (at + 2000), 3) for at in range(-1440, 1, 120)]
    stands = [record(0, offset, partition) for partition, offset in ((0, 100), (1, 500), (2, 5000), (4, 10_000))]
    write_rows(tables, "commits", [*reads, *stands])
    # The log start moves by one message per minute: from 0 a day ago to 1,440.
    starts = [
        look(at, 10_000, partition, start=at + 1440 if partition else 300)
        for at in range(-1440, 1, 120)
        for partition in range(5)
    ]
    write_rows(tables, "ends", starts)
    lost = "log_start"
    assert risks_of(history) == [
        (lost, 0, "g", 0, -200, "messages lost"),
        (lost, 0, "g", 1, -940, "messages lost"),
    ]
    assert risks_of(history, within=timedelta(minutes=3560))[2:] == [
        (lost, 3560, "g", 2, 3560, "log start comes nearer")
    ]


def test_a_log_start_that_hardly_moves_is_no_risk(tables: Path, history: History) -> None:
    """At a message a day it needs more years than a timedelta holds."""
    write_rows(tables, "commits", [record(0, 10**13)])
    write_rows(tables, "ends", [look(-1440, 2 * 10**13, start=0), look(0, 2 * 10**13, start=1)])
    assert risks_of(history) == []
