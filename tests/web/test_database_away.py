"""Every page and route answers from memory while the database of the event log is away, and says so."""

from hashlib import sha256

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from karrot.reporters.prometheus import build, render
from support.burrow.lag_events import make_event
from support.eventlog.replicated_log import REASON, SERVER, ReplicatedLog
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context
from support.web.credentials import make_credentials
from support.web.website import Website, make_website

GROUP = "cluster=prod-eu&consumer=orders"
PAGES = ["/", f"/group?{GROUP}", "/rejects", "/reporters", "/reporters/stdout", "/runbooks", "/runbooks/KarrotAbsent"]


@pytest.fixture
def log() -> ReplicatedLog:
    return ReplicatedLog(ManualClock())


@pytest.fixture
def website(log: ReplicatedLog) -> Website:
    return _website(log)


def _website(log: ReplicatedLog, api_token: str | None = None) -> Website:
    settings = {"partition_metrics": "true", "watch": "true", "reporters": "prometheus,stdout"}
    collectors = {"prometheus": build(make_context("prometheus", settings, log=log)).collector(log)}
    website = make_website(
        log=log,
        clock=log._clock,
        credentials=make_credentials(api_token=api_token),
        reporters=("prometheus", "stdout"),
        render_metrics=lambda accept, names: render(collectors, accept, names),
    )
    website.context.intake.accept(make_event(consumer="orders", total_lag=7))
    website.client.post("/burrow", data=b"{}")
    return website


def _id(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:8]


def page(website: Website, path: str) -> str:
    response = website.client.get(path, headers={"Accept": "text/html"})
    assert response.status_code == 200, path
    return response.text


@pytest.mark.parametrize("path", PAGES)
def test_each_page_says_that_it_comes_from_memory(website: Website, log: ReplicatedLog, path: str) -> None:
    assert "database of the event log" not in page(website, path)
    website.clock.advance(2_000)  # the list is made again
    log.away_ms = 45_000
    shown = page(website, path)
    assert shown.count("The database of the event log is away, so the groups are from 45 s ago: ") == 1
    assert REASON in shown
    assert 'href="/runbooks/KarrotLogNotWritable"' in shown


def test_the_group_and_its_lag_are_still_shown(website: Website, log: ReplicatedLog) -> None:
    log.away_ms = 1000
    assert "orders" in page(website, "/")
    shown = page(website, f"/group?{GROUP}")
    assert "Karrot cannot read the events now." in shown
    assert "Karrot cannot read the event that lists the partitions now." in shown
    assert "Karrot cannot read the refused requests now." in page(website, "/rejects")
    assert "Karrot cannot read the event now." in page(website, "/reporters/stdout")


def test_the_api_gives_what_is_known_and_null_for_the_rest(website: Website, log: ReplicatedLog) -> None:
    log.away_ms = 45_400
    groups = website.client.get("/api/v1/groups")
    assert [each["lag"] for each in groups.get_json()["groups"]] == [7]
    assert groups.headers["Karrot-Memory-Age"] == "45"
    group = website.client.get(f"/api/v1/group?{GROUP}").get_json()
    assert (group["lag"], group["partitions"], group["events"]) == (7, None, None)
    assert website.client.get("/api/v1/reporters").status_code == 200
    rejects = website.client.get("/api/v1/rejects")
    assert (rejects.status_code, rejects.get_json()["code"]) == (503, "log_unavailable")


def test_the_metrics_of_the_groups_go_on_and_tell_their_age(website: Website, log: ReplicatedLog) -> None:
    def samples() -> dict[str, float]:
        families = text_string_to_metric_families(website.client.get("/metrics").text)
        return {f"{each.name}{each.labels.get('replica', '')}": each.value for one in families for each in one.samples}

    told = samples()
    assert (told["karrot_consumer_lag"], told["karrot_log_memory_age_seconds"]) == (7, 0)
    assert (told[f"karrot_leader_info{_id('karrot-0')}"], told["karrot_replica_leads"]) == (1, 0)
    log.leading = "karrot-1"
    told = samples()
    assert (told[f"karrot_leader_info{_id('karrot-1')}"], told["karrot_replica_leads"]) == (1, 1)
    log.away_ms = 45_000
    told = samples()
    assert (told["karrot_consumer_lag"], told["karrot_log_memory_age_seconds"]) == (7, 45)
    assert (told["karrot_log_writable"], told["karrot_replica_leads"]) == (0, 0)  # nobody can lead
    assert f"karrot_leader_info{_id('karrot-1')}" not in told


def test_no_answer_without_credentials_names_a_machine_of_ours(log: ReplicatedLog) -> None:
    website = _website(log, "secret")
    ours = ("karrot-0", "karrot-1", "zone_b", "zone_c", SERVER.host, REASON)
    for log.away_ms in (None, 45_000):
        for path in ("/metrics", "/readyz", "/healthz", "/heartbeat", "/api/v1/reporters", "/", "/burrow"):
            answer = website.client.get(path).text
            assert [name for name in ours if name in answer] == [], path
    refused = website.client.post("/burrow", data=b"{}").text
    assert [name for name in ours if name in refused] == []


def test_standbys_are_metrics_and_a_sentence_if_they_are_visible(website: Website, log: ReplicatedLog) -> None:
    told = website.client.get("/metrics?name[]=karrot_log_standby_lag_seconds").text.splitlines()[2:]
    assert told == [
        f'karrot_log_standby_lag_seconds{{standby="{_id("zone_b")}"}} 0.0',
        f'karrot_log_standby_lag_seconds{{standby="{_id("zone_c")}"}} 1.25',
    ]
    sentence = "zone_b is 0.0 s behind, zone_c is 1.2 s behind"
    assert website.client.get("/readyz").get_json()["components"]["standbys"] == {"state": "ok", "detail": sentence}
    log.server = msgspec.structs.replace(SERVER, standby_lag_seconds=None)
    assert "standbys" not in website.client.get("/readyz").get_json()["components"]
    assert website.client.get("/metrics?name[]=karrot_log_standby_lag_seconds").text.splitlines()[2:] == []


def test_the_leader_is_shown_in_the_api_and_on_the_page_of_reporters(website: Website, log: ReplicatedLog) -> None:
    assert website.client.get("/api/v1/reporters").get_json()["leader"] == "karrot-0"
    assert "karrot-0</bdi> leads" in page(website, "/reporters")
    log.leading = None
    website.clock.advance(2_000)
    assert website.client.get("/api/v1/reporters").get_json()["leader"] is None
    assert "No replica leads now" in page(website, "/reporters")
    assert "No replica leads, so no reporter gets events" in page(website, "/")


def test_the_event_log_is_described_with_its_server(website: Website, log: ReplicatedLog) -> None:
    assert website.client.get("/api/v1/event-log").get_json() == {
        "log_id": log.log_id,
        "events": 1,
        "bytes": log.size().bytes,
        "replica": "karrot-1",
        "leader": "karrot-0",
        "fault": None,
        "memory_age_seconds": None,
        "database": {
            "host": "10.0.3.7",
            "version": "16.4",
            "encrypted": True,
            "synchronous_commit": "on",
            "synchronous_standby_names": "ANY 1 (zone_b)",
            "connections": 14,
            "max_connections": 97,
            "standby_lag_seconds": {"zone_b": 0.0, "zone_c": 1.25},
        },
    }
    log.away_ms, log.server = 1500, msgspec.structs.replace(SERVER, standby_lag_seconds=None)
    answer = website.client.get("/api/v1/event-log").get_json()
    assert (answer["fault"], answer["memory_age_seconds"], answer["database"]["standby_lag_seconds"]) == (
        REASON,
        1.5,
        None,
    )


def test_an_event_log_on_one_machine_has_no_replicas() -> None:
    answer = make_website().client.get("/api/v1/event-log").get_json()
    assert {name: answer[name] for name in ("replica", "leader", "fault", "memory_age_seconds", "database")} == (
        dict.fromkeys(("replica", "leader", "fault", "memory_age_seconds", "database"))
    )
