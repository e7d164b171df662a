"""The traps that show when Burrow and Karrot are looked at together."""

from typing import Any

import pytest

from karrot.burrow.client import EvaluatorModule
from karrot.doctor.checks import agreement as checks
from karrot.doctor.snapshot import BurrowSeen, KarrotSeen
from support.doctor_snapshots import (
    KARROT,
    NOW,
    ago,
    burrow,
    group,
    history,
    is_unjudged,
    is_well,
    karrot,
    notifier,
    sample,
    says,
    verdict,
)


@pytest.mark.parametrize(
    ("interval", "level"), [(0, "fault"), (30, "ok"), (120, "ok"), (121, "warn"), (149, "warn"), (150, "fault")]
)
def test_an_interval_fits_karrot_stale_after(interval: int, level: str) -> None:
    assert says(checks.stale_after, burrow(notifier(interval=interval)), karrot())[0] == level


def test_the_smallest_interval_of_all_notifiers_holds() -> None:
    both = burrow(notifier(interval=600), notifier(class_name="slack", interval=60))
    assert both.interval == 60
    assert is_well(checks.stale_after, both, karrot())


def test_a_cache_longer_than_the_interval_repeats_verdicts() -> None:
    assert is_well(checks.expire_cache, burrow(), karrot())
    cached = burrow(evaluators={"default": EvaluatorModule(class_name="caching", expire_cache=60)})
    assert says(checks.expire_cache, cached, karrot())[::2] == ("warn", "[evaluator.default] expire-cache = 10")


def test_a_notifier_that_fell_silent_is_a_fault_while_burrow_lists_groups() -> None:
    assert is_well(checks.silent_notifier, burrow(), karrot())
    silent = karrot(sample("karrot_last_event_timestamp_seconds", ago(121).timestamp(), cluster="prod"))
    level, what, remedy = says(checks.silent_notifier, burrow(), silent)
    assert (level, what) == ("fault", "Burrow lists 3 groups of prod, and Karrot last heard of it 121 s ago")
    assert "ZooKeeper's lock" in remedy
    other = karrot(sample("karrot_last_event_timestamp_seconds", ago(5).timestamp(), cluster="other"))
    assert "never heard of it" in says(checks.silent_notifier, burrow(), other)[1]


def test_hearing_only_of_groups_in_trouble_is_a_fault() -> None:
    assert is_well(checks.only_bad, burrow(), karrot())
    bad = karrot(groups=(group("stock", status="ERR"), group("burrow-prod")))
    assert says(checks.only_bad, burrow(), bad)[:2] == (
        "fault",
        "of prod Karrot hears only groups in trouble (1), though Burrow has healthy ones",
    )
    in_trouble = burrow(verdicts=(verdict("stock", status="ERR"),))
    assert is_unjudged(checks.only_bad, in_trouble, bad)


def test_groups_that_karrot_does_not_know_are_named() -> None:
    assert is_well(checks.missing_groups, burrow(), karrot())
    more = burrow(groups={"prod": ("audit", "billing", "burrow-prod", "stock")})
    level, what, _ = says(checks.missing_groups, more, karrot())
    assert (level, what) == ("warn", "Burrow lists 1 group of prod that Karrot does not know: stock")


def test_a_group_that_the_allowlist_keeps_back_is_not_missed_twice() -> None:
    let = burrow(notifier(group_allowlist="audit|billing"), groups={"prod": ("audit", "billing", "stock")})
    assert is_well(checks.missing_groups, let, karrot())


def test_groups_are_not_missed_where_not_all_were_read() -> None:
    assert is_unjudged(checks.missing_groups, burrow(), karrot(has_all_groups=False))
    assert is_unjudged(checks.missing_groups, burrow(), karrot(groups=None))


def test_lags_that_are_far_apart_are_told_with_their_age() -> None:
    assert is_well(checks.lag, burrow(), karrot())
    far = burrow(verdicts=(verdict("billing", lag=90_000),))
    assert says(checks.lag, far, karrot())[:2] == (
        "warn",
        "the lag of 1 of 1 group is another in Burrow than in Karrot: billing 90000 now, 50 10 s ago",
    )
    one = burrow(verdicts=(verdict("billing", lag=90_000), verdict("audit")))
    assert says(checks.lag, one, karrot())[0] == "note"
    assert is_unjudged(checks.lag, burrow(verdicts=()), karrot())


def test_a_lag_that_moved_a_little_is_the_same() -> None:
    assert is_well(checks.lag, burrow(verdicts=(verdict("billing", lag=900),)), karrot())
    assert is_well(checks.lag, burrow(), karrot(groups=(group("billing", lag=None),)))


def test_events_more_seldom_than_evaluations_give_the_send_interval_away() -> None:
    assert is_well(checks.send_interval, burrow(), karrot())
    seldom = karrot(histories={("prod", "billing"): history(30, 60, 30, 60, 60, 30)})
    assert says(checks.send_interval, burrow(), seldom) == (
        "warn",
        "events of a group come every 45 s, though Burrow evaluates every 30 s",
        "[notifier.NAME] send-interval = 20",
    )
    assert is_unjudged(checks.send_interval, burrow(notifier(threshold=2)), seldom)


def test_one_restart_makes_no_send_interval_wrong() -> None:
    once = karrot(histories={("prod", "billing"): history(30, 30, 30, 250, 30, 30)})
    assert is_well(checks.send_interval, burrow(), once)


def test_events_that_come_twice_in_an_interval_are_of_two_burrows() -> None:
    assert is_well(checks.two_burrows, burrow(), karrot())
    often = karrot(histories={("prod", "billing"): history(10, 20, 10, 20, 10, 20)})
    level, what, _ = says(checks.two_burrows, burrow(), often)
    assert (level, what) == ("warn", "more than one Burrow posts billing of prod: events come every 15 s")
    assert is_well(checks.two_burrows, burrow(notifier(), notifier()), often)


def test_incidents_that_take_turns_are_of_two_burrows() -> None:
    turns = karrot(histories={("prod", "billing"): history(30, 30, 30, 30, 30, 30, ids="abababa")})
    assert "take turns" in says(checks.two_burrows, burrow(), turns)[1]
    in_order = karrot(histories={("prod", "billing"): history(30, 30, 30, 30, 30, 30, ids="aaabbbb")})
    assert is_well(checks.two_burrows, burrow(), in_order)


def test_what_came_long_ago_or_from_another_burrow_s_cluster_is_not_judged() -> None:
    old = history(10, 10, 10, 10, 10, 10)
    later = KarrotSeen(url=KARROT, now=ago(-3600), histories={("prod", "billing"): old})
    assert is_unjudged(checks.two_burrows, burrow(), later)
    assert is_unjudged(checks.two_burrows, burrow(), karrot(histories={("test", "billing"): old}))


def test_expected_clusters_are_written_as_burrow_writes_them() -> None:
    assert is_well(checks.expected_clusters, burrow(), karrot())
    upper = karrot(settings={"KARROT_EXPECTED_CLUSTERS": "Prod,test"})
    assert says(checks.expected_clusters, burrow(), upper)[::2] == ("fault", "KARROT_EXPECTED_CLUSTERS=prod,test")
    none = karrot(settings={"KARROT_EXPECTED_CLUSTERS": ""})
    assert says(checks.expected_clusters, burrow(), none)[::2] == ("note", "KARROT_EXPECTED_CLUSTERS=prod")


def test_a_karrot_that_does_not_read_burrow_is_noted() -> None:
    assert is_well(checks.resync, burrow(), karrot())
    without = karrot(settings={"KARROT_BURROW_URL": ""})
    assert says(checks.resync, burrow(), without)[::2] == ("note", "KARROT_BURROW_URL=http://burrow:8000")


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.name)
def test_what_was_not_told_is_not_judged(check: Any) -> None:
    assert is_unjudged(check, BurrowSeen(url="http://burrow:8000"), KarrotSeen(url=KARROT, now=NOW))
