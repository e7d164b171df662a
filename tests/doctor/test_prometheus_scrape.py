"""The checks of Prometheus' scrape of Karrot."""

from dataclasses import replace
from typing import Any

import pytest

from karrot.doctor.checks import prometheus_scrape as checks
from karrot.doctor.snapshot_types import KarrotSeen, PrometheusSeen, Unread, seconds
from support.doctor_snapshots import (
    KARROT,
    NOW,
    finds_nothing,
    karrot_snapshot,
    only_finding,
    passes,
    prometheus_snapshot,
    scrape_target,
    seconds_ago,
)

CLASHING = {"job": "karrot", "instance": "karrot:5000", "cluster": "k8s-1"}


def test_a_prometheus_without_karrot_is_a_fault() -> None:
    assert passes(checks.target, prometheus_snapshot())
    assert only_finding(checks.target, prometheus_snapshot(targets=()))[:2] == (
        "fault",
        "Prometheus has no target that is Karrot",
    )
    assert finds_nothing(checks.target, prometheus_snapshot(targets=(), unread=(Unread("targets", "HTTP 404"),)))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("server returned HTTP status 401 Unauthorized", "set authorization: "),
        ('Get "http://karrot:5000/metrics": dial tcp: connect: connection refused', "set targets to "),
        ("sample_limit exceeded", "set scrape_timeout: 30s, or raise the limit"),
        ("EOF", "fix the cause in this message; try curl http://karrot:5000/metrics"),
    ],
)
def test_a_target_that_is_down_is_a_fault_with_its_reason(error: str, remedy: str) -> None:
    assert passes(checks.scrape_fails, prometheus_snapshot())
    told = only_finding(checks.scrape_fails, prometheus_snapshot(scrape_target(health="down", last_error=error)))
    assert told[:2] == ("fault", f"http://karrot:5000/metrics is down: {error}")
    assert told[2].startswith(remedy)


def test_another_path_is_a_warning() -> None:
    other = prometheus_snapshot(scrape_target(scrape_url=f"{KARROT}/api/v1/groups"))
    assert only_finding(checks.scrape_fails, other)[::2] == ("warn", "set metrics_path: /metrics")


def test_a_target_s_own_cluster_label_renames_karrot_s() -> None:
    assert passes(checks.honor_labels, prometheus_snapshot())
    level, what, remedy = only_finding(checks.honor_labels, prometheus_snapshot(scrape_target(labels=CLASHING)))
    assert (level, what) == ("fault", "Prometheus renames Karrot's labels: exported_cluster")
    assert "honor_labels: true" in remedy


def test_honor_labels_keeps_karrot_s_labels() -> None:
    honest = {"scrape_configs": [{"job_name": "karrot", "honor_labels": True}]}
    assert passes(checks.honor_labels, prometheus_snapshot(scrape_target(labels=CLASHING), config=honest))


def test_renamed_labels_are_found_whatever_the_configuration_says() -> None:
    level, what, _ = only_finding(checks.honor_labels, prometheus_snapshot(config={}, exported=["exported_cluster"]))
    assert (level, what) == ("fault", "Prometheus renames Karrot's labels: exported_cluster")


@pytest.mark.parametrize(("interval", "level"), [("15s", "ok"), ("1m", "ok"), ("2m", "warn"), ("5m0s", "fault")])
def test_a_long_scrape_interval_is_reported(interval: str, level: str) -> None:
    assert (
        only_finding(checks.scrape_interval, prometheus_snapshot(scrape_target(scrape_interval=interval)))[0] == level
    )


def test_an_interval_that_prometheus_does_not_report_is_not_judged() -> None:
    assert finds_nothing(checks.scrape_interval, prometheus_snapshot(scrape_target(scrape_interval="")))


def test_a_target_that_is_no_longer_scraped_is_a_warning() -> None:
    assert passes(checks.late_scrape, prometheus_snapshot())
    assert (
        only_finding(checks.late_scrape, prometheus_snapshot(scrape_target(last_scrape=seconds_ago(46))))[0] == "warn"
    )
    assert only_finding(checks.late_scrape, prometheus_snapshot(scrape_target(health="unknown")))[0] == "note"


def test_a_slow_scrape_is_a_warning() -> None:
    assert passes(checks.slow_scrape, prometheus_snapshot())
    assert only_finding(checks.slow_scrape, prometheus_snapshot(scrape_target(last_scrape_duration=6.0)))[:2] == (
        "warn",
        "a scrape of http://karrot:5000/metrics takes 6.0 s of 10 s",
    )


def test_groups_that_are_scraped_twice_are_reported() -> None:
    assert passes(checks.doubled, prometheus_snapshot())
    assert only_finding(checks.doubled, prometheus_snapshot(doubled=2))[0] == "warn"


def test_a_prometheus_without_an_alert_on_silence_is_noted() -> None:
    assert passes(checks.silence_alert, prometheus_snapshot())
    assert only_finding(checks.silence_alert, prometheus_snapshot(rules="{'groups': []}"))[0] == "note"


def test_the_alert_on_silence_uses_the_metric_that_the_source_of_verdicts_has() -> None:
    polls = prometheus_snapshot(beats=("karrot_watch_last_poll_timestamp_seconds",))
    assert only_finding(checks.silence_alert, polls) == (
        "note",
        "no alert rule of Prometheus uses karrot_watch_last_poll_timestamp_seconds",
        "add an alert with expr: time() - karrot_watch_last_poll_timestamp_seconds > 300",
    )
    assert passes(checks.silence_alert, replace(polls, rules="karrot_watch_last_poll_timestamp_seconds"))


POSTED = 'karrot_events_accepted_total{source="kafka"}'


def test_a_karrot_that_gets_the_verdicts_of_watch_by_post_gets_an_alert_that_can_fire() -> None:
    posts = prometheus_snapshot(beats=(POSTED,))
    assert only_finding(checks.silence_alert, posts) == (
        "note",
        "no alert rule of Prometheus uses karrot_events_accepted_total",
        f"add an alert with expr: sum(rate({POSTED}[5m])) == 0",
    )
    assert passes(checks.silence_alert, replace(posts, rules=f"sum(rate({POSTED}[5m])) == 0"))


def test_the_alert_on_the_sender_of_verdicts_needs_no_alert_on_what_it_posts() -> None:
    of_evaluate = "karrot_evaluate_last_batch_timestamp_seconds"
    batches = prometheus_snapshot(beats=(of_evaluate, POSTED))
    assert only_finding(checks.silence_alert, batches)[2] == f"add an alert with expr: time() - {of_evaluate} > 300"
    assert passes(checks.silence_alert, replace(batches, rules=of_evaluate))


def test_groups_that_relabelling_drops_are_a_fault() -> None:
    assert passes(checks.series, karrot_snapshot(), prometheus_snapshot())
    assert only_finding(checks.series, karrot_snapshot(), prometheus_snapshot(series=0))[0] == "fault"
    assert finds_nothing(checks.series, karrot_snapshot(groups=()), prometheus_snapshot(series=0))


def test_different_clocks_are_a_warning() -> None:
    assert passes(checks.clocks, karrot_snapshot(), prometheus_snapshot())
    assert only_finding(checks.clocks, karrot_snapshot(now=seconds_ago(-40)), prometheus_snapshot())[:2] == (
        "warn",
        "the clocks of Karrot and Prometheus differ by 40 s",
    )


@pytest.mark.parametrize("check", checks.ALONE[1:], ids=lambda check: check.name)
def test_missing_values_are_not_judged(check: Any) -> None:
    assert finds_nothing(check, PrometheusSeen(url="http://prometheus:9090", now=NOW))


def test_groups_are_not_checked_if_prometheus_gave_no_series() -> None:
    nothing = PrometheusSeen(url="http://prometheus:9090", now=NOW)
    assert finds_nothing(checks.series, KarrotSeen(url=KARROT, now=NOW), nothing)


@pytest.mark.parametrize(
    ("text", "value"),
    [("15s", 15), ("1m30s", 90), ("500ms", 0.5), ("2d", 172_800), pytest.param("", 0, id="no duration")],
)
def test_prometheus_durations_are_parsed(text: str, value: float) -> None:
    assert seconds(text) == value
