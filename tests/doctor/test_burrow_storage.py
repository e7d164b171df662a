"""The checks of the commits and offsets that Burrow reads and stores."""

from typing import Any

import pytest

from karrot.burrow.client import ZooKeeperConfig
from karrot.doctor.checks import burrow_storage as checks
from karrot.doctor.read_burrow import BurrowSeen
from karrot.doctor.reader_helpers import Unread
from support.doctor_snapshots import (
    PROFILE,
    burrow_module,
    burrow_snapshot,
    finds_nothing,
    make_verdict,
    only_finding,
    passes,
    replace_fields,
)


def test_a_starting_burrow_is_reported_as_starting() -> None:
    assert passes(checks.ready, burrow_snapshot())
    assert only_finding(checks.ready, burrow_snapshot(ready=False))[0] == "warn"
    assert finds_nothing(checks.ready, burrow_snapshot(ready=None))


def test_a_notifier_needs_zookeeper() -> None:
    assert passes(checks.zookeeper, burrow_snapshot())
    for none in (None, ()):
        told = only_finding(checks.zookeeper, burrow_snapshot(zookeeper=ZooKeeperConfig(servers=none)))
        assert told[::2] == ("fault", '[zookeeper] servers = ["HOST:2181"]')
    assert finds_nothing(checks.zookeeper, burrow_snapshot(zookeeper=None))


def test_empty_lists_are_faults() -> None:
    assert passes(checks.lists, burrow_snapshot())
    assert only_finding(checks.lists, burrow_snapshot(listed=(), groups={}, topics={}))[:2] == (
        "fault",
        "Burrow lists no cluster",
    )
    assert "no topic of prod" in only_finding(checks.lists, burrow_snapshot(topics={"prod": 0}))[1]
    assert only_finding(checks.lists, burrow_snapshot(groups={"prod": ()}))[:2] == (
        "fault",
        "Burrow lists no group of prod",
    )


def test_a_burrow_that_is_starting_lists_nothing_yet() -> None:
    assert finds_nothing(checks.lists, burrow_snapshot(ready=False, topics={"prod": 0}))


def test_a_list_that_could_not_be_read_does_not_count_as_empty() -> None:
    assert passes(checks.lists, burrow_snapshot(groups={}, topics={}))


def test_burrow_writes_clusters_in_lower_case() -> None:
    assert passes(checks.cluster_names, burrow_snapshot())
    assert only_finding(checks.cluster_names, burrow_snapshot(**burrow_module("consumers", cluster="Prod"))) == (
        "fault",
        "[consumer.prod] names Prod, but its name is prod: Burrow stores no commits",
        '[consumer.prod] cluster = "prod"',
    )


def test_a_cluster_without_a_consumer_section_and_one_with_a_space_are_faults() -> None:
    alone = burrow_module("clusters")["clusters"]["prod"]
    assert only_finding(checks.cluster_names, burrow_snapshot(consumers={}))[:2] == (
        "fault",
        "no consumer section reads the commits of prod",
    )
    spaced = burrow_snapshot(clusters={"prod eu": alone}, **burrow_module("consumers", cluster="prod eu"))
    assert "Burrow never evaluates it" in only_finding(checks.cluster_names, spaced)[1]
    other = [each.what for each in checks.cluster_names(burrow_snapshot(**burrow_module("consumers", cluster="test")))]
    assert other == [
        "[consumer.prod] names 'test', which is no cluster of Burrow",
        "no consumer section reads the commits of prod",
    ]


def test_an_unreadable_section_is_no_fault_of_another_section() -> None:
    unread = (Unread("[cluster.prod]", "no answer"),)
    assert finds_nothing(checks.cluster_names, burrow_snapshot(clusters={}, unread=unread))
    assert finds_nothing(
        checks.cluster_names, burrow_snapshot(consumers={}, unread=(Unread("consumer modules", "no answer"),))
    )


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("0.8.2", "fault"),
        ("0.10.2.0", "fault"),
        ("0.11.0", "ok"),
        ("2.8.0", "ok"),
        pytest.param("", "ok", id="no version"),
    ],
)
def test_an_old_kafka_version_finds_no_groups(version: str, level: str) -> None:
    profile = replace_fields(PROFILE, kafka_version=version)
    assert (
        only_finding(checks.kafka_version, burrow_snapshot(**burrow_module("consumers", client_profile=profile)))[0]
        == level
    )


def test_a_start_at_the_latest_commit_is_noted() -> None:
    assert passes(checks.start_latest, burrow_snapshot())
    assert (
        only_finding(checks.start_latest, burrow_snapshot(**burrow_module("consumers", start_latest=True)))[0] == "note"
    )


def test_log_ends_and_topics_must_be_read_often() -> None:
    assert passes(checks.refresh, burrow_snapshot())
    assert only_finding(checks.refresh, burrow_snapshot(**burrow_module("clusters", offset_refresh=45)))[::2] == (
        "warn",
        "[cluster.prod] offset-refresh = 10",
    )
    assert only_finding(checks.refresh, burrow_snapshot(**burrow_module("clusters", topic_refresh=3600)))[::2] == (
        "warn",
        "[cluster.prod] topic-refresh = 60",
    )


def test_a_window_of_commits_must_be_long_enough_for_verdicts() -> None:
    assert passes(checks.window, burrow_snapshot())
    assert only_finding(checks.window, burrow_snapshot(**burrow_module("storages", intervals=2)))[::2] == (
        "warn",
        "[storage.default] intervals = 10",
    )
    short = burrow_snapshot(verdicts=(make_verdict("billing", span_s=2), make_verdict("audit", span_s=0)))
    assert only_finding(checks.window, short) == (
        "warn",
        "the window of billing, audit is shorter than one offset-refresh: the lag cannot change within it",
        "[storage.default] min-distance = 1, or raise intervals above 10",
    )
    one = burrow_snapshot(verdicts=(make_verdict("billing", span_s=2), make_verdict("audit"), make_verdict("stock")))
    assert only_finding(checks.window, one)[0] == "note"


def test_a_misread_timestamp_does_not_count_as_a_short_window() -> None:
    assert passes(checks.window, burrow_snapshot(verdicts=(make_verdict(span_s=-9e12),)))


def test_a_short_expiry_of_groups_is_reported() -> None:
    assert passes(checks.expire_group, burrow_snapshot())
    assert only_finding(checks.expire_group, burrow_snapshot(**burrow_module("storages", expire_group=600)))[::2] == (
        "warn",
        "[storage.default] expire-group = 604800",
    )


@pytest.mark.parametrize(("status", "lag", "level"), [("OK", 12, "ok"), ("WARN", 12, "fault"), ("OK", 20_000, "fault")])
def test_a_burrow_that_lags_itself_is_reported(status: str, lag: int, level: str) -> None:
    own = make_verdict("burrow-prod", status=status, lag=lag)
    assert (
        only_finding(checks.self_lag, burrow_snapshot(verdicts=(own, make_verdict(status="ERR", lag=10**9))))[0]
        == level
    )


def test_a_burrow_that_does_not_watch_itself_is_not_judged() -> None:
    assert finds_nothing(checks.self_lag, burrow_snapshot(verdicts=(make_verdict(),)))


NOTHING = BurrowSeen(url="http://burrow:8000")
JUDGED_ALWAYS = ("lists", "ready")


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.name)
def test_missing_values_are_not_judged(check: Any) -> None:
    assert finds_nothing(check, NOTHING) is (check.name not in JUDGED_ALWAYS)
