"""The checks of Karrot itself."""

from dataclasses import replace
from typing import Any

import pytest

from karrot.api.bodies import Component, Reporters
from karrot.doctor.checks import storing_and_delivering as checks
from karrot.doctor.read_karrot import KarrotSeen
from karrot.runbooks_and_remedies import CODES
from support.doctor_snapshots import (
    KARROT,
    NOW,
    finds_nothing,
    karrot_snapshot,
    metric_sample,
    only_finding,
    passes,
    read_group,
    rejects,
    reporter,
    seconds_ago,
)

RUNBOOK = "KarrotLogNotWritable"
FIX = f"fix the cause in this message; the settings of {{}} are at {KARROT}/config; runbook: {KARROT}/runbooks/"


def rejected(code: str, *times_ago_s: float) -> KarrotSeen:
    counted = metric_sample("karrot_events_rejected_total", 7, code=code)
    return karrot_snapshot(counted, rejects=rejects(code, *times_ago_s))


def test_a_log_that_cannot_be_written_is_a_fault_with_its_reason() -> None:
    assert passes(checks.log_writable, karrot_snapshot())
    full = karrot_snapshot(components={"log": Component("failing", "the disk is full")})
    assert only_finding(checks.log_writable, full) == (
        "fault",
        "Karrot cannot store events: the disk is full",
        f"check PostgreSQL and its standby, and the hosts in KARROT_EVENT_LOG; runbook: {KARROT}/runbooks/{RUNBOOK}",
    )
    sqlite = replace(full, settings={"KARROT_EVENT_LOG": "sqlite"})
    assert only_finding(checks.log_writable, sqlite)[2] == (
        "check the disk of KARROT_DATA_DIR: free space, write permission, writes that hang; "
        f"runbook: {KARROT}/runbooks/{RUNBOOK}"
    )


def test_a_karrot_whose_replicas_have_no_leader_is_a_fault() -> None:
    assert passes(checks.leader, karrot_snapshot())
    nobody = karrot_snapshot(reporters=Reporters([], None))
    assert only_finding(checks.leader, nobody) == (
        "fault",
        "no replica leads, so no reporter gets events",
        f"see the log of each replica; runbook: {KARROT}/runbooks/KarrotNoLeader",
    )
    assert finds_nothing(checks.leader, replace(nobody, settings={"KARROT_EVENT_LOG": "sqlite"}))


def test_a_duty_that_fails_is_a_fault_and_names_its_runbook() -> None:
    assert passes(checks.components, karrot_snapshot())
    failing = karrot_snapshot(components={"resync": Component("failing", "Burrow is away")})
    assert only_finding(checks.components, failing) == (
        "fault",
        "resync is failing: Burrow is away",
        FIX.format("resync") + "KarrotResyncFailing",
    )


def test_a_failing_reporter_is_a_fault_with_its_reason() -> None:
    assert passes(checks.reporters, karrot_snapshot())
    failing = Reporters([reporter("cloudwatch", "failing", "AccessDenied: cloudwatch:PutMetricData")], None)
    assert only_finding(checks.reporters, karrot_snapshot(reporters=failing)) == (
        "fault",
        "the reporter cloudwatch is failing: AccessDenied: cloudwatch:PutMetricData",
        f"fix the cause in this message; the reporter's page: {KARROT}/reporters/cloudwatch",
    )


def test_a_reporter_that_is_far_behind_is_a_warning() -> None:
    behind = Reporters([reporter("cloudwatch", "ok", backlog=400, age_s=301.0)], None)
    assert only_finding(checks.reporters, karrot_snapshot(reporters=behind))[:2] == (
        "warn",
        "the reporter cloudwatch is 301 s behind (400 events)",
    )


def test_a_failing_reporter_is_found_without_the_api_too() -> None:
    failing = karrot_snapshot(reporters=None, components={"reporter cloudwatch": Component("failing")})
    assert only_finding(checks.components, failing)[1].startswith("reporter cloudwatch is failing: see the reason in ")


def test_data_that_a_reporter_left_out_are_noted() -> None:
    assert passes(checks.dropped, karrot_snapshot())
    left = metric_sample("karrot_reporter_dropped_total", 3, reporter="cloudwatch", reason="over_cap")
    assert only_finding(checks.dropped, karrot_snapshot(left))[:2] == (
        "note",
        "cloudwatch left out 3 values or events (over_cap) since the log began",
    )


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (checks.templates_refused, "unsupported_template"),
        (checks.credentials, "unauthorized"),
        (checks.bodies, "invalid_json"),
        (checks.not_stored, "log_unavailable"),
    ],
)
def test_refused_requests_are_a_fault_while_they_continue(check: Any, code: str) -> None:
    assert passes(check, karrot_snapshot())
    assert only_finding(check, rejected(code, 20, 5000))[:2] == (
        "fault",
        f"refused as {code}: 7 requests since the log began, the newest 20 s ago: It was wrong.",
    )
    assert only_finding(check, rejected(code, 5000))[0] == "note"
    assert only_finding(check, rejected(code))[:2] == (
        "warn",
        f"refused as {code}: 7 requests since the log began",
    )


def test_a_refused_template_is_reported_with_the_right_one() -> None:
    assert "{{ jsonencoder . }}" in only_finding(checks.templates_refused, rejected("unsupported_template", 5))[2]


@pytest.mark.parametrize(
    "code", ["empty_body", "not_utf8", "invalid_json", "not_an_object", "invalid_field", "too_large"]
)
def test_a_refused_body_is_reported_with_the_remedy_of_its_code_and_a_link(code: str) -> None:
    remedy = only_finding(checks.bodies, rejected(code, 5))[2]
    assert remedy == f"{CODES[code].remedy} See the bodies at {KARROT}/rejects".replace("`", "")
    assert only_finding(checks.bodies, rejected("of_a_newer_karrot", 5))[2] == f"See the bodies at {KARROT}/rejects"


def test_wrong_credentials_are_fixed_in_the_way_that_karrot_is_set_up() -> None:
    assert "KARROT_BURROW_PASSWORD" in only_finding(checks.credentials, rejected("unauthorized", 5))[2]
    token = replace(rejected("unauthorized", 5), settings={"KARROT_BURROW_TOKEN": "***", "KARROT_BURROW_USERNAME": ""})
    assert only_finding(checks.credentials, token)[2] == (
        "set Authorization in the notifier's headers to Bearer and KARROT_BURROW_TOKEN"
    )


def test_a_burrow_whose_events_were_refused_is_not_said_to_have_sent_none() -> None:
    refused = metric_sample("karrot_events_rejected_total", 7, code="unsupported_template")
    _, what, remedy = only_finding(checks.silence, karrot_snapshot(samples=(refused,)))
    assert what == "no Burrow ever sent an event that Karrot accepted"
    assert remedy == (
        "if the refusals in this list are Burrow's, fix their cause; otherwise, add the section that karrot "
        f"burrow-config --karrot {KARROT} prints to burrow.toml"
    )
    heard = metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(301).timestamp(), cluster="prod")
    _, what, remedy = only_finding(checks.silence, karrot_snapshot(refused, heard))
    assert what == "the Burrow of prod sent its last event that Karrot accepted 301 s ago"
    assert remedy.startswith(
        "if the refusals in this list are Burrow's, fix their cause; otherwise, check Burrow's log"
    )


@pytest.mark.parametrize("code", ["unsupported_template", "overloaded", "log_unavailable", "internal_error"])
def test_a_refusal_has_the_same_remedy_as_on_the_pages_and_in_the_api(code: str) -> None:
    check = checks.templates_refused if code == "unsupported_template" else checks.not_stored
    assert only_finding(check, rejected(code, 5))[2].startswith(CODES[code].remedy.replace("`", ""))


def test_a_silent_cluster_is_a_fault() -> None:
    assert passes(checks.silence, karrot_snapshot())
    old = metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(301).timestamp(), cluster="prod")
    assert only_finding(checks.silence, karrot_snapshot(old))[:2] == (
        "fault",
        "the Burrow of prod sent its last event 301 s ago",
    )
    never = metric_sample("karrot_last_event_timestamp_seconds", 0, cluster="test")
    assert only_finding(checks.silence, karrot_snapshot(never))[:2] == (
        "fault",
        "the Burrow of test never sent an event",
    )
    other = metric_sample("karrot_events_rejected_total", 0, code="unauthorized")
    assert only_finding(checks.silence, karrot_snapshot(samples=(other,)))[:2] == (
        "fault",
        "no Burrow ever sent an event",
    )


@pytest.mark.parametrize(
    ("cluster", "argument"),
    [("test", "test"), ("a b; rm -rf ~", "'a b; rm -rf ~'"), ("it's", "'it'\"'\"'s'"), ("a\nb", "$'a\\x0ab'")],
)
def test_a_cluster_that_is_gone_can_be_forgotten_with_the_command_that_is_printed(cluster: str, argument: str) -> None:
    silent, never = (metric_sample("karrot_last_event_timestamp_seconds", at, cluster=cluster) for at in (1, 0))
    remedy = only_finding(checks.silence, karrot_snapshot(silent))[2]
    assert remedy.endswith(f"; if the cluster is gone, run karrot forget-cluster {argument} --karrot {KARROT}")
    # Only the setting names a cluster that never sent an event: to forget it would change nothing.
    remedy = only_finding(checks.silence, karrot_snapshot(never))[2]
    assert remedy.endswith("; if the cluster is gone, take it out of KARROT_EXPECTED_CLUSTERS")


def test_a_burrow_that_reads_no_more_commits_is_a_fault() -> None:
    assert passes(checks.cut_off, karrot_snapshot())
    assert finds_nothing(checks.cut_off, karrot_snapshot(samples=()))
    cut_off = metric_sample("karrot_burrow_cut_off", 1, cluster="prod")
    assert only_finding(checks.cut_off, karrot_snapshot(cut_off))[:2] == (
        "fault",
        "the Burrow of prod reads no more commits, so its verdicts and lags are old",
    )


def test_a_karrot_that_polls_kafka_needs_no_burrow_and_names_the_runbook_on_failure() -> None:
    other = metric_sample("karrot_events_rejected_total", 0, code="unauthorized")
    assert passes(checks.silence, karrot_snapshot(samples=(other,), components={"watch": Component("ok")}))
    assert only_finding(checks.components, karrot_snapshot(components={"watch": Component("failing")})) == (
        "fault",
        "watch is failing: see the reason in the log of Karrot or on its home page",
        FIX.format("watch") + "KarrotWatchSilent",
    )


def test_a_cluster_that_watch_polls_has_no_burrow_also_before_its_first_verdict() -> None:
    never = metric_sample("karrot_last_event_timestamp_seconds", 0, cluster="test")
    polled = metric_sample("karrot_watch_last_poll_timestamp_seconds", 0, cluster="test")
    assert passes(checks.silence, karrot_snapshot(samples=(never, polled)))


def test_remedies_for_a_karrot_that_polls_kafka_name_no_burrow() -> None:
    watch = {"components": {"watch": Component("ok")}}
    dropped = metric_sample("karrot_series_dropped_total", 9)
    refused = metric_sample("karrot_events_rejected_total", 3, code="overloaded")
    for told, check, with_burrow, with_watch in (
        (dropped, checks.series_dropped, "denylist in Burrow", "KARROT_WATCH_EXCLUDE_GROUPS"),
        (refused, checks.not_stored, "KARROT_BURROW_URL", "use a faster disk"),
    ):
        assert with_burrow in only_finding(check, karrot_snapshot(told))[2]
        remedy = only_finding(check, karrot_snapshot(told, **watch))[2]
        assert with_watch in remedy
        assert with_burrow not in remedy


def test_a_cluster_whose_groups_come_from_kafka_is_not_silent() -> None:
    old = metric_sample("karrot_last_event_timestamp_seconds", seconds_ago(9000).timestamp(), cluster="prod")
    moved = karrot_snapshot(old, groups=(read_group(source="kafka"),))
    assert passes(checks.silence, moved)
    stopped = karrot_snapshot(old, groups=(read_group(source="kafka", age_s=301),))
    assert only_finding(checks.silence, stopped)[1] == "the Burrow of prod sent its last event 9000 s ago"
    other = metric_sample("karrot_events_rejected_total", 0, code="unauthorized")
    assert passes(checks.silence, karrot_snapshot(samples=(other,), groups=(read_group(source="kafka"),)))


def test_groups_without_series_are_a_warning() -> None:
    assert passes(checks.series_dropped, karrot_snapshot())
    assert (
        only_finding(checks.series_dropped, karrot_snapshot(metric_sample("karrot_series_dropped_total", 9)))[0]
        == "warn"
    )


@pytest.mark.parametrize(
    "metric", ["karrot_log_replaced_total", "karrot_log_damaged_total", "karrot_log_lost_events_total"]
)
def test_a_damaged_log_is_a_warning(metric: str) -> None:
    assert passes(checks.damage, karrot_snapshot())
    assert only_finding(checks.damage, karrot_snapshot(metric_sample(metric, 1)))[::2] == (
        "warn",
        "check its disk, unless a backup was restored, its files were changed, or a standby took over",
    )


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.name)
def test_missing_values_are_not_judged(check: Any) -> None:
    assert finds_nothing(check, KarrotSeen(url=KARROT, now=NOW))
