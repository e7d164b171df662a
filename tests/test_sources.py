"""Every alert, runbook, remedy and sentence is true for its source of verdicts: Burrow, or Kafka itself (``watch``)."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import promql_parser
import pytest

from karrot.api.bodies import Component, Reporters
from karrot.diagnosis.causes import cause
from karrot.doctor.checks import Finding, Level
from karrot.doctor.run_all_checks import all_checks
from karrot.event import GroupKey, LagEvent, OffsetSample, Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import GroupState, IncidentState, ReporterState
from karrot.eventlog.next_group_state import summarize
from karrot.eventlog.watch_data_of_groups import GroupHealth, WatchedCluster
from karrot.render import runbooks_dir, templates_dir
from karrot.render.prometheus_rules import alert_rules
from karrot.reporters.prometheus import build, render
from karrot.runbooks_and_remedies import WATCH
from karrot.web.pages.banners import ServiceHealth
from support.burrow.lag_events import make_event, make_partition
from support.doctor_snapshots import (
    karrot_snapshot,
    metric_sample,
    prometheus_snapshot,
    read_group,
    rejects,
    reporter,
    scrape_target,
)
from support.eventlog.replicated_log import ReplicatedLog
from support.manual_clock import ManualClock
from support.prometheus.promtool import parse_rules
from support.reporters.reporter_context import make_context
from support.web.banners import banners, read_banners
from support.web.website import Website, make_website

BURROW, KAFKA = "Burrow", "Kafka"
BOTH = frozenset({BURROW, KAFKA})
ONLY_BURROW, ONLY_KAFKA = frozenset({BURROW}), frozenset({KAFKA})

ALERTS: Mapping[str, frozenset[str]] = {
    "KarrotConsumerError": BOTH,
    "KarrotConsumerLagGrowing": BOTH,
    "KarrotConsumerNeverCatchesUp": BOTH,
    "KarrotConsumerNotCommitting": BOTH,
    "KarrotPartitionStopped": BOTH,
    "KarrotConsumerFlapping": BOTH,
    "KarrotConsumerRebalancing": ONLY_KAFKA,
    "KarrotConsumerVanished": BOTH,
    "KarrotMessagesLost": ONLY_KAFKA,
    "KarrotOffsetBeyondEnd": ONLY_KAFKA,
    "KarrotRetentionRisk": ONLY_KAFKA,
    "KarrotBurrowSilent": ONLY_BURROW,
    "KarrotBurrowCutOff": ONLY_BURROW,
    "KarrotClockAhead": BOTH,
    "KarrotWatchSilent": ONLY_KAFKA,
    "KarrotBurrowLagging": ONLY_BURROW,
    "KarrotOnlyUnhealthyVerdicts": ONLY_BURROW,
    "KarrotAbsent": BOTH,
    "KarrotRejectingEvents": ONLY_BURROW,  # watch in the service posts nothing, so nothing is refused
    "KarrotSeriesDropped": BOTH,
    "KarrotResyncFailing": ONLY_BURROW,
    "KarrotLogNotWritable": BOTH,
    "KarrotNoLeader": BOTH,
    "KarrotStandbyBehind": BOTH,
    "KarrotLogDamaged": BOTH,
    "KarrotReporterBacklog": BOTH,
    "KarrotReporterDropping": BOTH,
    "KarrotNotifyFailing": BOTH,
    "KarrotCloudWatchRefusing": BOTH,
    "KarrotCloudWatchOverCap": BOTH,
    "KarrotPipelineBehind": BOTH,
    "KarrotEvaluateBehind": BOTH,
}
"""The sources whose Karrot an alert and its runbook are for."""

CHECKS_OF_POSTS = {"templates-refused", "credentials", "bodies"}
"""Checks of refused requests. Only a Karrot that gets posts has such requests."""

_SPEAKS_OF = {
    BURROW: re.compile(r"\bBurrow\b|--burrow\b|burrow\.toml|\[notifier|ZooKeeper|KARROT_BURROW_URL|send-sample"),
    KAFKA: re.compile(r"`watch`|\bkarrot watch\b|KARROT_WATCH_|karrot_watch_|--bootstrap-servers"),
}
_SAYS_FOR_WHOM = {
    BURROW: re.compile(r"\b[Ww]ith(out)? Burrow\b"),
    KAFKA: re.compile(r"\b([Ww]ith|needs) `?watch\b|[Ww]ithout Burrow|karrot_last_event_timestamp_seconds\|"),
}


def false_for(source: str, units: Iterator[str] | list[str]) -> list[str]:
    """Return the units of a text that speak of the other source, and do not say that they are for it."""
    other = KAFKA if source == BURROW else BURROW
    return [each for each in units if _SPEAKS_OF[other].search(each) and not _SAYS_FOR_WHOM[other].search(each)]


def can_have_data(expression: str, exists: Callable[[str], bool]) -> bool:
    """Return whether an expression can have a result if only these metrics exist."""
    return _has_data(promql_parser.parse(expression), exists)


def _has_data(node: Any, exists: Callable[[str], bool]) -> bool:
    needed: list[Any] = []
    match node:
        case promql_parser.VectorSelector():
            names = [node.name] if node.name else node.matchers.matchers[0].value.split("|")
            return any(map(exists, names))
        case promql_parser.BinaryExpr() if str(node.op) == "or":
            return _has_data(node.lhs, exists) or _has_data(node.rhs, exists)
        case promql_parser.BinaryExpr():
            needed = [node.lhs] if str(node.op) == "unless" else [node.lhs, node.rhs]
        case promql_parser.MatrixSelector():
            needed = [node.vector_selector]
        case promql_parser.Call() if node.func.name != "absent":
            needed = node.args
        case promql_parser.AggregateExpr() | promql_parser.SubqueryExpr() | promql_parser.ParenExpr():
            needed = [node.expr]
    return all(_has_data(each, exists) for each in needed)


def rules() -> dict[str, Mapping[str, Any]]:
    return {rule["alert"]: rule for rule in parse_rules(alert_rules())}


def units_of(markdown: str) -> Iterator[str]:
    """Yield each paragraph, list item and line of code."""
    for part in markdown.split("\n\n"):
        is_list = part.lstrip().startswith(("-", "1.", "```"))
        yield from part.splitlines() if is_list else [" ".join(part.splitlines())]


def website_of(source: str) -> Website:
    """Make a website that got every status of partitions from one source."""
    website = make_website(duties=(WATCH,) if source == KAFKA else (), expected_clusters=["prod-eu"])
    if source == KAFKA:
        health = GroupHealth("unjudged", "Stable", 3, 1, 0, 1, 1, 1, 2)
        known = GroupHealth("orders-STOP", "Stable", 3, 1, 0, 1, 1, 1, 2)
        groups = (health, known)
        poll = WatchedCluster("prod-eu", website.clock.wall, 0.1, website.log.log_time_ms(), 300_000, groups, others=2)
        watch_data_of_groups.keep(website.log, poll)
    for event in events_of(source):
        website.context.intake.accept(event)
    return website


def events_of(source: str) -> Iterator[LagEvent]:
    """Yield a verdict with a partition in each status that the source knows, a slow group and a healthy one."""
    from_kafka = source == KAFKA
    origin = Source.KAFKA if from_kafka else Source.WEBHOOK
    statuses = ("STOP", "STALL", "REWIND", "WARN", *(("BEYOND_END", "NEVER_COMMITTED") if from_kafka else ()))
    for status in statuses:
        offset = (
            {"current_lag": None, "log_end": 90, "log_start": 2} if status in ("BEYOND_END", "NEVER_COMMITTED") else {}
        )
        end = None if status == "NEVER_COMMITTED" else OffsetSample(9_000, 1_746_950_399_000, lag=None if offset else 9)
        one = make_partition(status_text=status, end=end, **offset)
        yield make_event(
            consumer=f"orders-{status}",
            status_text="WARN" if status == "WARN" else "ERR",
            source=origin,
            max_lag=one,
            partitions=(one,),
        )
    yield make_event(consumer="unlisted", status_text="ERR", source=origin, max_lag=None, partitions=())
    kinds = {"status_text": "OK", "incident_id": None, "incident_start": None}
    yield make_event(consumer="fine", source=origin, **kinds)


# Alerts and runbooks


def test_the_table_has_every_alert() -> None:
    assert ALERTS.keys() == rules().keys()


@pytest.mark.parametrize("alert", ALERTS)
def test_the_text_of_an_alert_is_true_for_its_sources(alert: str) -> None:
    annotations = rules()[alert]["annotations"]
    for source in ALERTS[alert]:
        assert false_for(source, [annotations["summary"], annotations["description"]]) == []


@pytest.mark.parametrize("alert", ALERTS)
def test_a_runbook_says_what_is_only_for_one_source(alert: str) -> None:
    text = (runbooks_dir() / f"{alert}.md").read_text(encoding="utf-8")
    for source in ALERTS[alert]:
        assert false_for(source, units_of(text)) == []


@pytest.fixture(scope="module")
def exported() -> Mapping[str, set[str]]:
    """Return the metrics with samples, by source."""
    found = {}
    for source in BOTH:
        log = website_of(source).log
        options = {"watch": "true"} if source == KAFKA else {}
        _, pieces = render({"prometheus": build(make_context("prometheus", options, log=log)).collector(log)})
        found[source] = set(re.findall(r"^(karrot_\w+)", b"".join(pieces).decode(), re.MULTILINE))
    return found


def exists_for(source: str, exported: Mapping[str, set[str]]) -> Callable[[str], bool]:
    """Return whether a metric exists, unless only the other source has it. A counter may have no sample yet."""
    missing = exported[KAFKA if source == BURROW else BURROW] - exported[source]
    return lambda name: name not in missing


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_can_fire_for_its_sources_and_one_of_watch_for_no_other(
    alert: str, exported: Mapping[str, set[str]]
) -> None:
    expression = rules()[alert]["expr"]
    for source in ALERTS[alert]:
        assert can_have_data(expression, exists_for(source, exported)), source
    if ALERTS[alert] == ONLY_KAFKA:
        assert not can_have_data(expression, exists_for(BURROW, exported))


@pytest.mark.parametrize("board", ["overview", "group"])
def test_the_descriptions_of_a_dashboard_on_groups_are_true_for_both_sources(board: str) -> None:
    text = (templates_dir() / "grafana" / f"karrot-{board}.json").read_text(encoding="utf-8")
    descriptions = [json.loads(f'"{each}"') for each in re.findall(r'"description": "((?:[^"\\]|\\.)*)"', text)]
    assert len(descriptions) > 10
    assert false_for(KAFKA, descriptions) == []


# Pages


@pytest.mark.parametrize("source", sorted(BOTH))
def test_causes_are_true_for_the_source_of_the_verdict(source: str) -> None:
    for event in events_of(source):
        found = cause(GroupState(GroupKey("c", "g"), 1, 0, summarize(event, 0), IncidentState()), 90.0)
        if found is not None:
            assert false_for(source, [found.brief, found.sentence, found.look]) == []


@pytest.mark.parametrize("source", sorted(BOTH))
def test_pages_are_true_for_the_source_of_verdicts(source: str) -> None:
    website = website_of(source)
    paths = ["/", *(f"/group?cluster=prod-eu&consumer={event.consumer}" for event in events_of(source))]
    if source == KAFKA:
        paths.append("/group?cluster=prod-eu&consumer=unjudged")
    for path in (*paths, "/reporters", "/rejects"):
        assert false_for(source, said_at(website, path)) == [], path
    website.clock.advance(400_000)  # no group is left
    if source == KAFKA:
        assert false_for(source, said_at(website, "/")) == []
    assert ("Burrow has been silent" in " ".join(said_at(website, "/"))) == (source == BURROW)


@pytest.mark.parametrize("source", sorted(BOTH))
def test_banners_are_true_for_the_source_of_verdicts(source: str) -> None:
    website = website_of(source)
    website.log.save_reporter(ReporterState("stdout", None, "failing", "Broken pipe", website.clock.wall))
    if source == KAFKA:
        website.log.save_reporter(ReporterState(WATCH, None, "failing", "Connection refused", website.clock.wall))
    context = replace(website.context, max_consumers=1)
    website.client.application.extensions["karrot"] = context
    text = said_at(website, "/")
    assert any("limit of groups" in each for each in text)
    assert any("failing" in each for each in text)
    assert false_for(source, text) == []


def test_banners_on_the_event_log_are_true_for_both_sources() -> None:
    log = ReplicatedLog(ManualClock())
    log.away_ms = 45_000
    away = read_banners(make_website(log=log).client.get("/", headers={"Accept": "text/html"}).text)
    assert away
    full = banners(ServiceHealth(fault="disk full"))
    leaderless = banners(ServiceHealth(has_replicas=True))
    for banner in (*away, *full, *leaderless):
        for source in BOTH:
            assert false_for(source, [banner.wrong, banner.remedy]) == []


def test_the_first_page_of_a_karrot_that_polls_kafka_needs_no_burrow() -> None:
    website = make_website(duties=(WATCH,), expected_clusters=["prod-eu"])
    watch_data_of_groups.keep(website.log, WatchedCluster("prod-eu", 0, 0.0, 0, 0, ()))
    assert false_for(KAFKA, said_at(website, "/")) == []


def said_at(website: Website, path: str) -> list[str]:
    """Return the texts of the elements of a page."""
    response = website.client.get(path, headers={"Accept": "text/html"})
    assert response.status_code == 200, path
    body = re.sub(r"<(head|footer|nav)\b.*?</\1>", "", response.text, flags=re.DOTALL)
    inline = re.sub(r"</?(code|small|b|bdi|span|a|abbr|time)\b[^>]*>", "", body)
    return [each for each in map(str.strip, re.split(r"<[^>]+>", inline)) if each]


# The doctor


def broken_karrot() -> Any:
    """Return a Karrot that polls Kafka and has every fault that a check of Karrot alone finds."""
    samples = [
        metric_sample("karrot_watch_last_poll_timestamp_seconds", 0, cluster="prod"),
        metric_sample("karrot_last_event_timestamp_seconds", 0, cluster="prod"),
        metric_sample("karrot_series_dropped_total", 9),
        metric_sample("karrot_log_replaced_total", 1),
        metric_sample("karrot_reporter_dropped_total", 1, reporter="cloudwatch", reason="rejected"),
        *(
            metric_sample("karrot_events_rejected_total", 3, code=code)
            for code in ("overloaded", "log_unavailable", "unconfirmed", "internal_error")
        ),
    ]
    return karrot_snapshot(
        *samples,
        components={"log": Component("failing"), "watch": Component("failing")},
        settings={
            "KARROT_REPORTERS": "cloudwatch,archive",
            "KARROT_WATCH_BOOTSTRAP": "kafka:9092",
            "KARROT_EVENT_LOG": "postgresql://db/karrot",
        },
        reporters=Reporters([reporter("cloudwatch", "failing", "AccessDenied")], None),
        groups=(read_group(consumer="audit", source="kafka"),),
        rejects=rejects("overloaded", 9),
        histories={},
    )


def broken_snapshots() -> Iterator[dict[str, Any]]:
    """Yield a Karrot that polls Kafka with its Prometheus. Together they have every fault that a check finds."""
    down = scrape_target(health="down", last_error="connection refused")
    karrot = broken_karrot()
    yield {"Karrot": karrot, "Prometheus": prometheus_snapshot(down, has_moved=True)}
    sqlite = karrot.settings | {"KARROT_EVENT_LOG": "sqlite"}
    yield {"Karrot": replace(karrot, settings=sqlite), "Prometheus": prometheus_snapshot(targets=())}


def test_every_remedy_of_the_doctor_is_true_for_a_karrot_that_polls_kafka() -> None:
    found: dict[str, list[Finding]] = {}
    for sides in broken_snapshots():
        for needed, check in all_checks():
            programs = needed.split(", ")
            if set(programs) <= sides.keys() and check.name not in CHECKS_OF_POSTS:
                said = check(*(sides[name] for name in programs))
                found.setdefault(check.name, []).extend(each for each in said if each.level is not Level.OK)
    assert [name for name, said in found.items() if not said] == ["silence", "cut-off"]  # no Burrow is missing
    for name, said in found.items():
        assert false_for(KAFKA, [text for each in said for text in (each.what, each.remedy)]) == [], name


# This test itself


@pytest.mark.parametrize(
    ("source", "planted"),
    [
        (KAFKA, "Burrow has judged orders as ERR for 5m or longer."),
        (KAFKA, "Ask Burrow which partition it is."),
        (KAFKA, "Set threshold = 1 in [notifier.karrot]."),
        (KAFKA, "karrot lag --burrow http://burrow:8000 --group orders"),
        (BURROW, "Raise `KARROT_WATCH_INTERVAL`."),
        (BURROW, "increase(karrot_watch_failures_total[10m]) > 0"),
    ],
)
def test_a_planted_false_sentence_is_found(source: str, planted: str) -> None:
    assert false_for(source, ["A true sentence.", planted]) == [planted]
    assert false_for(KAFKA if source == BURROW else BURROW, [planted]) == []


def test_a_planted_alert_that_cannot_fire_without_burrow_is_found(exported: Mapping[str, set[str]]) -> None:
    planted = "time() - karrot_last_event_timestamp_seconds > 300"
    assert not can_have_data(planted, exists_for(KAFKA, exported))
    assert can_have_data(planted, exists_for(BURROW, exported))
