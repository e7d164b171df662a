"""The checks that compare Burrow with Karrot."""

from typing import Any

import pytest

from karrot.burrow.client import EvaluatorModule
from karrot.doctor.checks import verdicts_arrive_in_time_and_unchanged as checks
from karrot.doctor.read_burrow import BurrowSeen
from karrot.doctor.read_karrot import KarrotSeen
from karrot.event import GroupKey
from support.doctor_snapshots import (
    KARROT,
    NOW,
    burrow_snapshot,
    finds_nothing,
    group_history,
    karrot_snapshot,
    make_verdict,
    metric_sample,
    notifier_module,
    only_finding,
    passes,
    read_group,
    seconds_ago,
)

BILLING = GroupKey("prod", "billing")


@pytest.mark.parametrize(
    ("interval", "level"), [(0, "fault"), (30, "ok"), (120, "ok"), (121, "warn"), (149, "warn"), (150, "fault")]
)
def test_an_interval_must_fit_karrot_stale_after(interval: int, level: str) -> None:
    assert (
        only_finding(checks.stale_after, burrow_snapshot(notifier_module(interval=interval)), karrot_snapshot())[0]
        == level
    )


def test_the_smallest_interval_of_all_notifiers_counts() -> None:
    both = burrow_snapshot(notifier_module(interval=600), notifier_module(class_name="slack", interval=60))
    assert both.interval == 60
    assert passes(checks.stale_after, both, karrot_snapshot())


def test_a_cache_longer_than_the_interval_repeats_verdicts() -> None:
    assert passes(checks.expire_cache, burrow_snapshot(), karrot_snapshot())
    cached = burrow_snapshot(evaluators={"default": EvaluatorModule(class_name="caching", expire_cache=60)})
    assert only_finding(checks.expire_cache, cached, karrot_snapshot())[::2] == (
        "warn",
        "[evaluator.default] expire-cache = 10",
    )


def test_a_notifier_that_fell_silent_is_a_fault_while_burrow_lists_groups() -> None:
    assert passes(checks.silent_notifier, burrow_snapshot(), karrot_snapshot())
    silent = karrot_snapshot(
        metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(121).timestamp(), cluster="prod")
    )
    level, what, remedy = only_finding(checks.silent_notifier, burrow_snapshot(), silent)
    assert (level, what) == ("fault", "Burrow lists 3 groups of prod, but Karrot accepted the last one 121 s ago")
    assert "ZooKeeper's lock" in remedy
    other = karrot_snapshot(
        metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(5).timestamp(), cluster="other")
    )
    assert "never accepted an event of it" in only_finding(checks.silent_notifier, burrow_snapshot(), other)[1]


def test_a_silence_is_explained_by_what_the_snapshot_shows() -> None:
    refused = metric_sample("karrot_events_rejected_total", 7, code="unsupported_template")
    silent = metric_sample("karrot_last_event_timestamp_seconds", 0, cluster="prod")
    remedy = only_finding(checks.silent_notifier, burrow_snapshot(), karrot_snapshot(refused, silent))[2]
    assert remedy.startswith(
        "if the refusals in this list are Burrow's, fix their cause; otherwise, check Burrow's log"
    )
    high = notifier_module(threshold=2)
    remedy = only_finding(checks.silent_notifier, burrow_snapshot(high), karrot_snapshot(silent))[2]
    assert remedy == "[notifier.NAME] threshold = 1: otherwise, Burrow sends nothing while all groups are OK"
    in_trouble = burrow_snapshot(high, verdicts=(make_verdict("billing", status="ERR"),))
    assert "ZooKeeper's lock" in only_finding(checks.silent_notifier, in_trouble, karrot_snapshot(silent))[2]


def test_a_burrow_without_a_notifier_for_karrot_is_reported_once() -> None:
    silent = metric_sample("karrot_last_event_timestamp_seconds", 0, cluster="prod")
    elsewhere = notifier_module(url_open="http://pager.example:1467/v1/event")
    assert finds_nothing(checks.silent_notifier, burrow_snapshot(elsewhere), karrot_snapshot(silent))


def test_events_about_only_unhealthy_groups_are_a_fault() -> None:
    assert passes(checks.only_bad, burrow_snapshot(), karrot_snapshot())
    bad = karrot_snapshot(groups=(read_group("stock", status="ERR"), read_group("burrow-prod")))
    assert only_finding(checks.only_bad, burrow_snapshot(notifier_module(threshold=2)), bad) == (
        "fault",
        "Karrot gets only WARN and ERR of prod (1 group), but Burrow has groups that are OK",
        "[notifier.NAME] threshold = 1",
    )
    assert only_finding(checks.only_bad, burrow_snapshot(), bad)[2] == "remove send-once from [notifier.NAME]"
    only_stock = burrow_snapshot(notifier_module(group_allowlist="^stock$"))
    assert finds_nothing(checks.only_bad, only_stock, bad)
    in_trouble = burrow_snapshot(verdicts=(make_verdict("stock", status="ERR"),))
    assert finds_nothing(checks.only_bad, in_trouble, bad)


def test_groups_that_karrot_does_not_know_are_named() -> None:
    assert passes(checks.missing_groups, burrow_snapshot(), karrot_snapshot())
    more = burrow_snapshot(groups={"prod": ("audit", "billing", "burrow-prod", "stock")})
    level, what, remedy = only_finding(checks.missing_groups, more, karrot_snapshot())
    assert (level, what) == ("warn", "Burrow lists 1 group of prod that Karrot does not know: stock")
    assert f"and the refused events at {KARROT}/rejects; Burrow sends a new group within 90 s" in remedy


def test_a_group_that_the_allowlist_excludes_is_reported_once() -> None:
    let = burrow_snapshot(
        notifier_module(group_allowlist="audit|billing"), groups={"prod": ("audit", "billing", "stock")}
    )
    assert passes(checks.missing_groups, let, karrot_snapshot())


def test_groups_are_not_reported_as_missing_if_not_all_were_read() -> None:
    assert finds_nothing(checks.missing_groups, burrow_snapshot(), karrot_snapshot(has_all_groups=False))
    assert finds_nothing(checks.missing_groups, burrow_snapshot(), karrot_snapshot(groups=None))


def test_fewer_events_than_evaluations_reveal_the_send_interval() -> None:
    assert passes(checks.send_interval, burrow_snapshot(), karrot_snapshot())
    seldom = karrot_snapshot(histories={BILLING: group_history(30, 60, 30, 60, 60, 30)})
    assert only_finding(checks.send_interval, burrow_snapshot(), seldom) == (
        "warn",
        "events of a group arrive every 45 s, but Burrow evaluates every 30 s",
        "[notifier.NAME] send-interval = 20",
    )
    assert finds_nothing(checks.send_interval, burrow_snapshot(notifier_module(threshold=2)), seldom)


def test_one_restart_does_not_count_as_a_wrong_send_interval() -> None:
    once = karrot_snapshot(histories={BILLING: group_history(30, 30, 30, 250, 30, 30)})
    assert passes(checks.send_interval, burrow_snapshot(), once)


def test_more_events_than_notifiers_in_one_interval_mean_another_sender() -> None:
    assert passes(checks.two_burrows, burrow_snapshot(), karrot_snapshot())
    often = karrot_snapshot(histories={BILLING: group_history(10, 20, 10, 20, 10, 20)})
    level, what, remedy = only_finding(checks.two_burrows, burrow_snapshot(), often)
    assert (level, what) == (
        "warn",
        "more than one program posts billing of prod: 1.8 events arrive in an interval of 30 s",
    )
    assert "[zookeeper] servers and root-path" in remedy
    for other in (notifier_module(group_allowlist="^audit$"), notifier_module(url_open="http://test:5000/burrow")):
        assert only_finding(checks.two_burrows, burrow_snapshot(notifier_module(), other), often)[1] == what


@pytest.mark.parametrize("gaps", [(0, 30, 0, 30, 0, 30, 0), (30, 0, 30, 0, 30, 0), (12, 18, 12, 18, 12, 18)])
def test_two_notifiers_of_one_burrow_are_not_called_two_burrows(gaps: tuple[float, ...]) -> None:
    twice = karrot_snapshot(histories={BILLING: group_history(*gaps)})
    both = burrow_snapshot(notifier_module(), notifier_module(group_allowlist="^b"))
    level, what, remedy = only_finding(checks.two_burrows, both, twice)
    assert level == "warn"
    assert what.startswith("[notifier.a], [notifier.b] admit billing of prod, and ")
    assert remedy.startswith("let only one of them admit a group (group-allowlist, group-denylist)")
    four = karrot_snapshot(histories={BILLING: group_history(0, 0, 0, 30, 0, 0, 0, 30, 0, 0, 0)})
    assert "more than one program posts" in only_finding(checks.two_burrows, both, four)[1]
    once = karrot_snapshot(histories={BILLING: group_history(30, 30, 30, 30, 30, 30)})
    assert passes(checks.two_burrows, both, once), "their denylists can separate them"


def test_alternating_incidents_mean_two_burrows() -> None:
    turns = karrot_snapshot(histories={BILLING: group_history(30, 30, 30, 30, 30, 30, ids="abababa")})
    assert "two incident ids alternate" in only_finding(checks.two_burrows, burrow_snapshot(), turns)[1]
    in_order = karrot_snapshot(histories={BILLING: group_history(30, 30, 30, 30, 30, 30, ids="aaabbbb")})
    assert passes(checks.two_burrows, burrow_snapshot(), in_order)


def test_old_events_and_events_of_another_burrow_s_cluster_are_not_judged() -> None:
    old = group_history(10, 10, 10, 10, 10, 10)
    later = KarrotSeen(url=KARROT, now=seconds_ago(-3600), histories={BILLING: old})
    assert finds_nothing(checks.two_burrows, burrow_snapshot(), later)
    assert finds_nothing(
        checks.two_burrows, burrow_snapshot(), karrot_snapshot(histories={GroupKey("test", "billing"): old})
    )


def test_expected_clusters_must_be_spelled_as_in_burrow() -> None:
    assert passes(checks.expected_clusters, burrow_snapshot(), karrot_snapshot())
    upper = karrot_snapshot(settings={"KARROT_EXPECTED_CLUSTERS": "Prod,test"})
    assert only_finding(checks.expected_clusters, burrow_snapshot(), upper)[::2] == (
        "fault",
        "KARROT_EXPECTED_CLUSTERS=prod,test",
    )


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.name)
def test_missing_values_are_not_judged(check: Any) -> None:
    assert finds_nothing(check, BurrowSeen(url="http://burrow:8000"), KarrotSeen(url=KARROT, now=NOW))
