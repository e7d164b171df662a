"""The checks of `karrot pipeline evaluate`, and of its verdicts in Karrot."""

from typing import Any

import pytest

from karrot.doctor.checks import evaluate_batches as checks
from karrot.doctor.snapshot_types import KarrotSeen, ReadComponent, ReadGroupEvent
from karrot.event import GroupKey
from support.doctor_snapshots import (
    KARROT,
    NOW,
    evaluate_snapshot,
    finds_nothing,
    karrot_snapshot,
    metric_sample,
    only_finding,
    passes,
    seconds_ago,
)

WATCHING = {"watch": ReadComponent("ok")}


def accepted(*, webhook: int, kafka: int, **fields: Any) -> KarrotSeen:
    """Make a Karrot with these counts of events, and its last webhook ten seconds ago, or none."""
    heard = (metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(10).timestamp(), cluster="prod"),)
    counts = (
        metric_sample("karrot_events_accepted_total", webhook, source="webhook"),
        metric_sample("karrot_events_accepted_total", kafka, source="kafka"),
    )
    return karrot_snapshot(samples=(*(heard if webhook else ()), *counts), **fields)


def test_an_evaluate_that_is_not_healthy_is_a_fault_with_its_reason() -> None:
    assert passes(checks.evaluate_health, evaluate_snapshot())
    assert only_finding(checks.evaluate_health, evaluate_snapshot(trouble="'Spark has ended'"))[:2] == (
        "fault",
        "evaluate is not healthy: 'Spark has ended'",
    )


@pytest.mark.parametrize(("age_s", "level"), [(0, "ok"), (180, "ok"), (181, "fault")])
def test_verdicts_older_than_three_intervals_are_a_fault(age_s: float, level: str) -> None:
    assert only_finding(checks.last_batch, evaluate_snapshot(last_batch=seconds_ago(age_s)))[0] == level


def test_an_old_batch_is_described_with_its_age_and_the_interval() -> None:
    assert only_finding(checks.last_batch, evaluate_snapshot(last_batch=seconds_ago(600)))[1] == (
        "the last verdicts of evaluate are 600 s old, and the interval is 60 s"
    )


def test_an_evaluate_without_a_batch_may_start_for_three_intervals() -> None:
    started = {"batches": 0, "batch_seconds": None, "groups": None, "delivered": 0}
    assert only_finding(checks.last_batch, evaluate_snapshot(last_batch=seconds_ago(50), **started)) == (
        "note",
        "evaluate started 50 s ago, and has made no verdicts yet",
        "run karrot doctor again after 180 s",
    )
    assert only_finding(checks.last_batch, evaluate_snapshot(last_batch=seconds_ago(500), **started))[:2] == (
        "fault",
        "evaluate has made no verdicts since its start 500 s ago, and the interval is 60 s",
    )


def test_a_clock_behind_evaluate_s_makes_no_negative_age_and_hides_no_difference() -> None:
    assert evaluate_snapshot(last_batch=seconds_ago(-30)).age == 30


def test_a_batch_longer_than_the_interval_is_a_warning_unless_it_is_the_first() -> None:
    assert passes(checks.batch_time, evaluate_snapshot(batch_seconds=60))
    level, what, remedy = only_finding(checks.batch_time, evaluate_snapshot(batch_seconds=90))
    assert (level, what) == ("warn", "the last batch of evaluate took 90 s, longer than the interval of 60 s")
    assert remedy.startswith("give Spark more cores")
    assert only_finding(checks.batch_time, evaluate_snapshot(batch_seconds=90, batches=1))[0] == "note"


def test_an_evaluate_without_groups_is_a_fault() -> None:
    assert passes(checks.evaluate_groups, evaluate_snapshot())
    assert only_finding(checks.evaluate_groups, evaluate_snapshot(groups=0))[:2] == (
        "fault",
        "evaluate knows no consumer group",
    )


def test_refused_verdicts_are_a_warning_that_says_where_they_are() -> None:
    assert passes(checks.refused_verdicts, evaluate_snapshot())
    level, what, remedy = only_finding(checks.refused_verdicts, evaluate_snapshot(refused=3))
    assert (level, what) == ("warn", "Karrot refused 3 of 203 verdicts since the start of evaluate")
    assert remedy.startswith("read the codes in CHECKPOINT/refused")


def test_an_evaluate_that_is_catching_up_needs_patience() -> None:
    assert only_finding(checks.last_batch, evaluate_snapshot(last_batch=seconds_ago(600), is_catching_up=True))[:2] == (
        "note",
        "evaluate reads records that waited, and judges no group until it has read them",
    )


def test_records_that_evaluate_cannot_read_are_counted() -> None:
    assert passes(checks.unreadable_records, evaluate_snapshot())
    assert only_finding(checks.unreadable_records, evaluate_snapshot(unreadable=1))[:2] == (
        "warn",
        "evaluate could not read 1 record of __consumer_offsets since its start",
    )


@pytest.mark.parametrize(("failures", "level"), [(0, "ok"), (1, "note"), (9, "note"), (10, "warn")])
def test_unanswered_requests_for_log_ends_are_counted(failures: int, level: str) -> None:
    assert only_finding(checks.log_end_requests, evaluate_snapshot(log_end_failures=failures))[0] == level


def test_the_count_of_unanswered_requests_is_put_next_to_the_batches() -> None:
    assert only_finding(checks.log_end_requests, evaluate_snapshot(log_end_failures=1, batches=1))[1] == (
        "Kafka did not answer 1 request for log ends since the start of evaluate (1 batch)"
    )


def test_verdicts_that_do_not_arrive_in_karrot_are_a_fault() -> None:
    assert passes(checks.evaluate_arrival, evaluate_snapshot(), accepted(webhook=0, kafka=1))
    assert only_finding(checks.evaluate_arrival, evaluate_snapshot(), accepted(webhook=0, kafka=0)) == (
        "fault",
        f"evaluate has delivered 200 verdicts since its start, but {KARROT} has no event with the source kafka",
        f"start evaluate with --to karrot={KARROT}; without --to, it only prints the verdicts",
    )


def test_events_without_the_source_kafka_may_come_from_evaluate_with_bad_partitions_only() -> None:
    level, what, remedy = only_finding(checks.evaluate_arrival, evaluate_snapshot(), accepted(webhook=9, kafka=0))
    assert level == "note"
    assert what.endswith("its events come from Burrow, or from evaluate with --partitions bad")
    assert remedy.startswith("without --partitions bad, start evaluate with --to ")


@pytest.mark.parametrize("check", checks.WITH_KARROT, ids=lambda check: check.name)
def test_verdicts_of_watch_cannot_be_told_from_those_of_evaluate(check: Any) -> None:
    assert finds_nothing(check, evaluate_snapshot(), accepted(webhook=0, kafka=0, components=WATCHING))


def test_nothing_is_missing_in_karrot_before_the_first_verdict() -> None:
    assert finds_nothing(checks.evaluate_arrival, evaluate_snapshot(delivered=0), accepted(webhook=0, kafka=0))


def test_burrow_and_evaluate_for_the_same_groups_are_a_warning() -> None:
    def sent(*events: tuple[float, str]) -> KarrotSeen:
        history = tuple(ReadGroupEvent(seconds_ago(age_s), source) for age_s, source in events)
        return karrot_snapshot(histories={GroupKey("prod", "billing"): history})

    assert passes(checks.two_senders, evaluate_snapshot(), sent((5, "kafka"), (65, "kafka"), (70, "rest")))
    assert passes(checks.two_senders, evaluate_snapshot(), sent((5, "kafka"), (65, "kafka"), (185, "webhook")))
    assert only_finding(checks.two_senders, evaluate_snapshot(), sent((5, "kafka"), (20, "webhook"))) == (
        "warn",
        "Karrot gets verdicts on the same groups of prod from Burrow and from evaluate",
        "stop one of the two, or give evaluate a name with --cluster that is not prod",
    )


@pytest.mark.parametrize("check", checks.WITH_KARROT, ids=lambda check: check.name)
def test_missing_values_of_karrot_are_not_judged(check: Any) -> None:
    assert finds_nothing(check, evaluate_snapshot(), KarrotSeen(url=KARROT, now=NOW))


@pytest.mark.parametrize("check", [checks.batch_time, checks.evaluate_groups], ids=lambda check: check.name)
def test_missing_values_of_evaluate_are_not_judged(check: Any) -> None:
    assert finds_nothing(check, evaluate_snapshot(batches=0, batch_seconds=None, groups=None))
