"""The doctor reads Burrow, Karrot and Prometheus over HTTP and reports the findings about all of them."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.samples import Sample

from karrot.api.bodies import Component
from karrot.doctor import Level, Snapshot, examine, read_all
from karrot.doctor.read_and_check_prometheus import PrometheusSeen
from karrot.doctor.read_burrow import GROUPS_ASKED, BurrowSeen
from karrot.doctor.read_karrot import KarrotSeen
from karrot.doctor.reader_helpers import Unreachable, Unread
from karrot.doctor.run_all_checks import all_checks
from karrot.http_client import Limits
from support.burrow.fake_burrow_rig import fake_burrow, simulated_group
from support.burrow.viper_config import EXAMPLE
from support.doctor_snapshots import (
    burrow_snapshot,
    karrot_snapshot,
    metric_sample,
    notifier_module,
    prometheus_snapshot,
    read_group,
)
from support.prometheus.fake_prometheus import fake_prometheus
from support.servers.scripted_server import http_response, scripted_server
from support.service.free_ports import free_port
from support.service.karrot_service import Service

ROOT = Path(__file__).parents[2]
CHECKS = [each for _, each in all_checks()]
BEAT = {"status": "success", "msg": "", "time": "2027-01-15T08:00:00Z"}
QUICK = Limits(timeout_s=5, pause=lambda _: None)
TARGET = {
    "scrapeUrl": "http://10.0.0.1:5000/metrics",
    "health": "up",
    "labels": {"job": "lag", "instance": "a"},
    "scrapePool": "lag",
    "lastError": "",
    "lastScrape": "2027-01-15T08:00:00.123456789Z",
    "lastScrapeDuration": 0.01,
    "scrapeInterval": "15s",
    "scrapeTimeout": "10s",
    "discoveredLabels": {},
    "globalUrl": "http://a",
}


def burrow_at(url: str, *, karrot: str | None = None) -> BurrowSeen:
    seen = read_all(url, limits=QUICK).burrow if karrot is None else read_all(url, karrot, limits=QUICK).burrow
    assert isinstance(seen, BurrowSeen)
    return seen


def test_all_answers_of_burrow_are_read_and_nothing_is_deleted() -> None:
    with fake_burrow(simulated_group("billing"), simulated_group("burrow-prod"), simulated_group("a/b")) as asked:
        asked.after(60)
        seen = burrow_at(asked.server.url)
        assert {each.partition(" ")[0] for each in asked.server.asked} == {"GET"}
    assert (seen.listed, seen.ready, seen.unread) == (("prod",), True, ())
    assert seen.groups == {"prod": ("a/b", "billing", "burrow-prod")}
    assert seen.topics == {"prod": 1}
    assert [event.consumer for event in seen.verdicts] == ["burrow-prod", "billing"]
    assert list(seen.to_karrot) == ["karrot"]
    assert (seen.interval, seen.notifiers["karrot"].threshold) == (30, 1)


@pytest.mark.parametrize(("age_s", "expected"), [(30, 30.0), (600, None), (None, None)])
def test_a_burrow_without_events_is_asked_when_it_started(
    tmp_path: Path, age_s: int | None, expected: float | None
) -> None:
    with fake_burrow(simulated_group("billing")) as asked, Service(tmp_path / "data") as karrot:
        asked.after(60)
        asked.server.api.started_s = None if age_s is None else time.time() - age_s
        seen = read_all(asked.server.url, f"http://127.0.0.1:{karrot.port}", limits=QUICK)
    assert isinstance(seen.karrot, KarrotSeen)
    assert seen.karrot.not_due == ({} if expected is None else {"prod": pytest.approx(expected, abs=20)})


@pytest.mark.parametrize("heard", [[metric_sample("karrot_last_event_timestamp_seconds", 0, cluster="prod")], []])
def test_a_burrow_that_has_just_started_is_judged_later(heard: list[Sample]) -> None:
    other = metric_sample("karrot_events_rejected_total", 0, code="unauthorized")
    karrot = karrot_snapshot(samples=(*heard, other), not_due={"prod": 40.0})
    found = {each.check: each for each in examine(Snapshot(burrow=burrow_snapshot(), karrot=karrot))}
    for name in ("silence", "silent-notifier"):
        assert (found[name].level, found[name].what) == (
            Level.NOTE,
            "the Burrow of prod started 40 s ago, and its first events are not due yet",
        )
    later = examine(Snapshot(burrow=burrow_snapshot(), karrot=replace(karrot, not_due={})))
    assert {each.level for each in later if each.check in found} >= {Level.FAULT}


def test_a_burrow_that_has_just_started_does_not_hide_another_one_that_is_silent() -> None:
    heard = [metric_sample("karrot_last_event_timestamp_seconds", 0, cluster=cluster) for cluster in ("prod", "dead")]
    karrot = karrot_snapshot(samples=heard, not_due={"prod": 40.0})
    found = [each for each in examine(Snapshot(burrow=burrow_snapshot(), karrot=karrot)) if each.check == "silence"]
    assert [each.level for each in found] == [Level.FAULT, Level.NOTE]
    assert found[0].what.startswith("the Burrow of dead never sent an event")


def test_some_of_many_groups_are_read_and_burrow_s_own_group_is_among_them() -> None:
    names = [f"group-{number:03}" for number in range(GROUPS_ASKED + 20)]
    with fake_burrow(*(simulated_group(name) for name in names), simulated_group("burrow-prod")) as asked:
        asked.after(5)
        seen = burrow_at(asked.server.url)
    assert len(seen.groups["prod"]) == len(names) + 1
    assert [event.consumer for event in seen.verdicts] == ["burrow-prod", *names[: GROUPS_ASKED - 1]]


def test_only_the_urls_of_karrot_s_notifiers_are_requested() -> None:
    with scripted_server(
        http_response(b"moved", "301 Moved Permanently", b"Location: https://elsewhere/burrow\r\n")
    ) as (url, asked):
        config = EXAMPLE.replace("http://karrot:5000", url) + '[notifier.pager]\nclass-name = "http"\n'
        config += f'url-open = "{url}/page-somebody"\n'
        with fake_burrow(simulated_group("billing"), configuration=config) as burrow:
            seen = burrow_at(burrow.server.url)
    (found,) = seen.webhooks.values()
    assert (found.status, found.detail, found.is_karrot) == (301, "https://elsewhere/burrow", False)
    assert [each.split(b"\r\n")[0] for each in asked] == [b"GET /burrow HTTP/1.1"]


def test_an_unreadable_module_is_noted_and_the_rest_is_read() -> None:
    clusters = b'{"error":false,"message":"","clusters":[]}'
    with scripted_server(http_response(clusters), *[http_response(b"no such thing", "404 Not Found")] * 20) as (url, _):
        seen = burrow_at(url)
    assert seen.listed == ()
    assert {each.what for each in seen.unread} == {
        "general configuration",
        "readiness",
        *(f"{each} modules" for each in ("cluster", "consumer", "storage", "evaluator", "notifier")),
    }


def test_each_unreachable_side_is_reported() -> None:
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    seen = read_all(*urls, limits=QUICK)
    assert seen == Snapshot(
        burrow=Unreachable(urls[0], "no connection: Connection refused"),
        karrot=Unreachable(urls[1], "no connection: Connection refused"),
        prometheus=Unreachable(urls[2], "no connection: Connection refused"),
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>", id="a page of HTML"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(b"[]", id="an empty array"),
        pytest.param(b"\xff", id="not UTF-8"),
        pytest.param(b'{"time": 5}', id="an object with a time"),
        pytest.param(b'{"data": {"result": []}}', id="an object without results"),
        pytest.param(b'{"a":' * 99_999, id="JSON with too many levels"),
    ],
)
def test_another_server_is_not_taken_for_karrot_or_prometheus(body: bytes) -> None:
    with scripted_server(*[http_response(body)] * 2) as (url, _):
        seen = read_all(None, url, url, limits=QUICK)
    assert isinstance(seen.karrot, Unreachable)
    assert isinstance(seen.prometheus, Unreachable)
    assert "is not valid" in seen.karrot.error


def test_no_answer_of_a_karrot_causes_a_traceback() -> None:
    beat = http_response(json.dumps(BEAT).encode())
    endless = [b"HTTP/1.1 200 OK\r\n\r\nx 1 1 1 1"]
    for odd in (
        http_response(b"{"),
        http_response(b"gone", "410 Gone"),
        http_response(b"\xff\xfe{ 1 a{"),
        http_response(b'{"a":' * 99_999),
        endless,
    ):
        with scripted_server(beat, *[odd] * 20) as (url, _):
            seen = read_all(karrot=url, limits=QUICK).karrot
        assert isinstance(seen, KarrotSeen)
        assert len(seen.unread) >= 5


def test_prometheus_is_read_as_far_as_it_answers() -> None:
    results = {"karrot_build_info": 1, 'count({__name__=~"karrot_.+",exported_cluster!=""})': 7}
    other = TARGET | {"labels": {"job": "node", "instance": "b"}, "scrapeUrl": "http://10.0.0.2:9100/metrics"}
    with fake_prometheus(targets=[TARGET, other], results=results) as url:
        seen = read_all(prometheus=url, limits=QUICK).prometheus
    assert isinstance(seen, PrometheusSeen)
    assert [each.labels["job"] for each in seen.targets] == ["lag"]
    assert (seen.has_moved, seen.unread) == (True, ())


def test_the_address_or_name_shows_which_target_is_karrot_s() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    at_its_address = TARGET | {"scrapeUrl": f"{nobody}/metrics"}
    named = TARGET | {"labels": {"job": "karrot", "instance": "c"}}
    other = TARGET | {"scrapeUrl": "http://10.0.0.2:9100/metrics"}
    with fake_prometheus(targets=[at_its_address, named, other]) as url:
        seen = read_all(None, nobody, url, limits=QUICK).prometheus
    assert isinstance(seen, PrometheusSeen)
    assert len(seen.targets) == 2


def test_a_prometheus_that_hides_its_targets_is_a_warning_and_not_judged() -> None:
    with fake_prometheus(targets=[TARGET], closed=frozenset({"/api/v1/targets"})) as url:
        found = examine(read_all(prometheus=url, limits=QUICK))
    assert [(each.level, each.check) for each in found if each.level.is_wrong] == [(Level.WARN, "part")]
    assert "target" not in {each.check for each in found}


def test_a_newer_karrot_gives_no_traceback() -> None:
    """Its bodies have more fields, and a value that this doctor does not know."""
    group: dict[str, Any] = msgspec.to_builtins(read_group("orders")) | {"more": {}}
    groups = [group, group | {"lag_seconds_kind": "guessed"}]
    bodies: list[Any] = [BEAT | {"more": 1}, {"groups": groups, "next": None}, *[[]] * 20]
    with scripted_server(*[http_response(json.dumps(each).encode()) for each in bodies]) as (url, _):
        seen = read_all(karrot=url, limits=QUICK).karrot
    assert isinstance(seen, KarrotSeen)
    assert "lag_seconds_kind" in seen.unread[0].error
    examine(Snapshot(karrot=seen))


def test_the_token_is_sent_only_to_karrot() -> None:
    with scripted_server(*[http_response(b"{}")] * 2) as (url, asked):
        read_all(None, url, None, token="s3cret", limits=QUICK)
        read_all(None, None, url, token="s3cret", limits=QUICK)
    assert [b"Authorization: Bearer s3cret" in each for each in asked] == [True, False]


def test_every_check_reports_success_if_nothing_is_wrong() -> None:
    found = examine(Snapshot(burrow=burrow_snapshot(), karrot=karrot_snapshot(), prometheus=prometheus_snapshot()))
    assert {each.level for each in found} == {Level.OK}
    assert {each.check for each in found} == {each.name for each in CHECKS}


def test_faults_come_first() -> None:
    wrong = burrow_snapshot(notifier_module(threshold=2, method_close="DELETE"))
    found = examine(Snapshot(burrow=wrong, karrot=karrot_snapshot(), prometheus=prometheus_snapshot()))
    assert [each.check for each in found[:2]] == ["threshold", "method"]
    assert [each.level for each in found] == sorted((each.level for each in found), key=list(Level).index)


def test_a_side_that_does_not_answer_is_a_fault_and_the_others_are_checked() -> None:
    found = examine(Snapshot(burrow=Unreachable("http://b:8000", "no connection: refused"), karrot=karrot_snapshot()))
    (away,) = [each for each in found if each.level is Level.FAULT]
    assert away.what == "Burrow cannot be read at http://b:8000: no connection: refused"
    assert [each.what for each in found if each.level is Level.NOTE] == ["Prometheus was not checked"]
    assert "silence" in {each.check for each in found}
    assert "two-burrows" not in {each.check for each in found}


def test_watch_replaces_burrow() -> None:
    without = examine(Snapshot(karrot=karrot_snapshot()))
    assert [each.what for each in without if each.check == "side"] == [
        "Burrow was not checked",
        "Prometheus was not checked",
    ]
    polls = karrot_snapshot(components={"watch": Component("ok")})
    assert [each.what for each in examine(Snapshot(karrot=polls)) if each.check == "side"] == [
        "Prometheus was not checked"
    ]


def test_an_unreadable_part_is_a_warning_with_the_error() -> None:
    unread = karrot_snapshot(settings=None, unread=(Unread("settings (/config)", "HTTP 500, 'x'"),))
    (warned,) = [each for each in examine(Snapshot(karrot=unread)) if each.level is Level.WARN]
    assert warned.what == "Karrot: settings (/config) could not be read: HTTP 500, 'x'"
    assert warned.remedy == "check the answer of Karrot there"


def test_all_parts_that_need_the_token_are_one_warning() -> None:
    unread = tuple(Unread(part, "HTTP 401, ''") for part in ("settings (/config)", "rejects (/api/v1/rejects)"))
    (warned,) = [each for each in examine(Snapshot(karrot=karrot_snapshot(unread=unread))) if each.level is Level.WARN]
    assert (warned.what, warned.remedy) == (
        "Karrot: settings (/config), rejects (/api/v1/rejects) could not be read without the API token (HTTP 401)",
        "set KARROT_API_TOKEN (or _FILE) in the environment of karrot doctor",
    )


def test_names_of_checks_are_unique() -> None:
    names = [each.name for each in CHECKS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_names_its_subject_and_its_documentation(check: Any) -> None:
    assert check.problem.endswith(".")
    assert check.success
    page, _, anchor = check.where.partition("#")
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
    assert not anchor or anchor in anchors


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_has_a_failing_case_and_a_healthy_one(check: Any) -> None:
    function = check.name.replace("-", "_")
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert re.search(rf"only_finding\(\s*checks\.{function}\b|\(checks\.{function}, \"", tests)
