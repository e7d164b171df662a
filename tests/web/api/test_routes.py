import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow.payload import parse_stored, to_wire
from karrot.event import LagEvent, OffsetSample, Source
from karrot.eventlog import rows
from karrot.eventlog.base import Cursor, ReporterState
from karrot.reporters.base import Fact, RefusedDatum, Report, Sent
from karrot.text import instant
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.burrow.recorded_bodies import recorded_body
from support.eventlog.read_commits import cut_off_from_kafka
from support.examples import examples
from support.web.website import Website, make_website


def take(website: Website, *events: LagEvent) -> Website:
    for event in events:
        website.context.intake.accept(event)
    return website


def names(answer: Any) -> list[tuple[str, str]]:
    return [(group["cluster"], group["consumer"]) for group in answer["groups"]]


def get(website: Website, path: str, **query: Any) -> Any:
    response = website.client.get(path, query_string=query)
    assert response.status_code == 200, response.text
    assert response.content_type == "application/json"
    return json.loads(response.data)


def test_a_burrow_that_is_cut_off_from_kafka_has_a_status_and_no_lag() -> None:
    website = make_website()
    cut_off_from_kafka(website.log, website.clock)
    worst = make_partition(status_text="STOP")
    take(website, make_event(status_text="ERR", max_lag=worst, partitions=(worst,)), make_event(cluster="other"))
    old, other = get(website, "/api/v1/groups", cluster="prod-eu"), get(website, "/api/v1/groups", cluster="other")
    assert [each["burrow_cut_off"] for each in (*old["groups"], *other["groups"])] == [True, False]
    assert other["groups"][0]["lag"]
    key = {"cluster": "prod-eu", "consumer": old["groups"][0]["consumer"]}
    for one in (old["groups"][0], get(website, "/api/v1/group", **key)):
        names = (
            "lag",
            "max_lag",
            "scalable_lag",
            "lag_seconds",
            "lag_seconds_kind",
            "catch_up_seconds",
            "produce_rate",
        )
        assert (one["status"], {one[name] for name in names}) == ("ERR", {None})
    assert [one["partitions"][0]["lag"], one["max_lag_partition"]["lag"]] == [None, None]
    told = get(website, "/api/v1/explain", **key)
    assert (told["cause"], told["lag"], told["lag_seconds"]) == ("burrow_cut_off", None, None)
    take(website, make_event(**key, status_text="OK", incident_id=None, total_lag=4, source=Source.KAFKA))
    [listed] = get(website, "/api/v1/groups", **key)["groups"]
    for one in (listed, get(website, "/api/v1/group", **key)):
        assert (one["status"], one["lag"], one["source"], one["burrow_cut_off"]) == ("OK", 4, "kafka", False)


def test_a_group_has_all_fields() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    answer = get(website, "/api/v1/groups")
    assert answer["next"] is None
    (group,) = answer["groups"]
    signals = {"lag_seconds", "lag_seconds_extrapolated", "catch_up_seconds", "produce_rate", "consume_rate"}
    assert {key: value for key, value in group.items() if key not in signals} == {
        "cluster": "prod-eu",
        "consumer": "orders-svc",
        "status": "ERR",
        "status_code": 3,
        "lag": 48263,
        "max_lag": 48211,
        "max_lag_topic": "orders.v1",
        "scalable_lag": 52,
        "lag_seconds_kind": "extrapolated",
        "lag_seconds_topic": "orders.v1",
        "lag_seconds_partition": 3,
        "partition_count": 12,
        "bad_partitions": {
            "WARN": 0,
            "STOP": 1,
            "STALL": 0,
            "REWIND": 0,
            "BEYOND_END": 0,
            "NEVER_COMMITTED": 0,
            "OPEN_TRANSACTION": 0,
        },
        "complete": 1.0,
        "kind": "incident",
        "source": "webhook",
        "observed_at": "2027-01-15T08:00:00Z",
        "last_event_at": "2027-01-15T08:00:00Z",
        "last_commit_at": "2025-05-11T07:43:20Z",
        "incident": {"id": "8d5c0c9e-52a1-4d67-9a54-0f6a2b6f3c11", "since": "2025-05-11T07:58:12.304000Z"},
        "incidents_total": 1,
        "muted": None,
        "burrow_cut_off": False,
    }
    assert signals <= group.keys()


def test_numbers_are_not_rounded_and_unknown_values_are_null() -> None:
    website = take(make_website(), make_event(total_lag=2**64 - 1, max_lag=None, partitions=(), complete=None))
    (group,) = get(website, "/api/v1/groups")["groups"]
    assert group["lag"] == 18446744073709551615
    assert group["max_lag"] is None
    assert group["lag_seconds"] is None
    assert group["complete"] is None


def test_pages_follow_each_other_for_any_names() -> None:
    keys = sorted(
        (cluster, consumer) for cluster in ("a", "ü/…", "z") for consumer in ("", "\0", "g/h?i#", "名前", "x" * 999)
    )
    website = take(make_website(), *(make_event(cluster=cluster, consumer=consumer) for cluster, consumer in keys))
    seen: list[tuple[str, str]] = []
    after = ""
    while after is not None:
        answer = get(website, "/api/v1/groups", limit=4, after=after)
        assert 1 <= len(answer["groups"]) <= 4
        seen += names(answer)
        after = answer["next"]
    assert seen == keys


def test_groups_are_filtered_by_cluster_status_and_text() -> None:
    website = take(
        make_website(),
        make_event(cluster="eu", consumer="Orders", status_text="WARN"),
        make_event(cluster="eu", consumer="payments", status_text="OK", incident_id=None),
        make_event(cluster="us", consumer="orders", status_text="ERR"),
    )
    assert names(get(website, "/api/v1/groups", cluster="eu")) == [("eu", "Orders"), ("eu", "payments")]
    assert names(get(website, "/api/v1/groups", status="ERR")) == [("us", "orders")]
    assert names(get(website, "/api/v1/groups", q="ORD")) == [("eu", "Orders"), ("us", "orders")]
    assert names(get(website, "/api/v1/groups", q="ord", cluster="eu", status="WARN")) == [("eu", "Orders")]
    assert len(get(website, "/api/v1/groups", cluster="", status="", q="")["groups"]) == 3


def test_a_filtered_page_ends_at_its_last_match() -> None:
    website = take(make_website(), *(make_event(consumer=name) for name in ("a1", "b", "a2", "c", "a3")))
    first = get(website, "/api/v1/groups", q="a", limit=2, cluster="prod-eu")
    assert [name for _, name in names(first)] == ["a1", "a2"]
    second = get(website, "/api/v1/groups", q="a", limit=2, cluster="prod-eu", after=first["next"])
    assert ([name for _, name in names(second)], second["next"]) == (["a3"], None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("limit", value) for value in ("0", "1001", "-1", "+5", "ten", "1_0", "1.0", " 5")),
        pytest.param("limit", "٣", id="limit-a digit that is not ASCII"),
        pytest.param("limit", "9" * 5000, id="limit-5000 digits"),
        *(("after", value) for value in ("x", "!!!", "é")),
        pytest.param("after", "[]", id="after-an empty array"),
        pytest.param("after", "null", id="after-null"),
        pytest.param("after", "{}", id="after-an empty object"),
        pytest.param("after", '["a"]', id="after-an array of one name"),
        *(("status", value) for value in ("warn", "STOP", "\0")),
    ],
)
def test_a_wrong_parameter_is_named(name: str, value: str) -> None:
    response = make_website().client.get("/api/v1/groups", query_string={name: value})
    assert response.status_code == 400
    assert response.json is not None
    assert (response.json["code"], response.json["path"]) == ("invalid_field", name)


def test_a_single_group_has_its_partitions_and_its_history() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_warn.json"))
    website.clock.advance(30_000)
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    answer = get(website, "/api/v1/group", cluster="prod-eu", consumer="orders-svc")
    assert answer["status"] == "ERR"
    assert answer["all_partitions_listed"] is False
    (partition,) = answer["partitions"]
    assert partition == {
        "topic": "orders.v1",
        "partition": 3,
        "status": "STOP",
        "lag": 48211,
        "lag_at_most": None,
        "log_start_offset": None,
        "log_end_offset": 238222,
        "start": {
            "offset": 188200,
            "timestamp_ms": 1746948500000,
            "committed_at": "2025-05-11T07:28:20Z",
            "lag": 0,
            "observed_at": "2025-05-11T07:28:21Z",
        },
        "end": {
            "offset": 190011,
            "timestamp_ms": 1746949400000,
            "committed_at": "2025-05-11T07:43:20Z",
            "lag": 12,
            "observed_at": "2025-05-11T07:43:21Z",
        },
        "owner": "/10.20.30.40",
        "client_id": "consumer-orders-1",
        "complete": 1.0,
    }
    assert answer["max_lag_partition"] == partition
    assert [event["status"] for event in answer["events"]] == ["ERR", "WARN"]
    assert answer["events"][0]["event_id"] == f"{website.log.log_id}-2"
    assert answer["events"][0]["bad_partitions"] == 1


def test_the_log_and_the_bound_that_kafka_gave_are_in_a_partition() -> None:
    beyond = make_partition(status_text="BEYOND_END", current_lag=None, log_end=1_331, log_start=7)
    never = make_partition(status_text="NEVER_COMMITTED", current_lag=None, end=None, log_end=90, log_start=20)
    event = make_event(source=Source.KAFKA, status_text="ERR", total_lag=None, partitions=(beyond, never))
    answer = get(take(make_website(), event), "/api/v1/group", cluster="prod-eu", consumer="orders-svc")
    asked = ("lag", "lag_at_most", "log_start_offset", "log_end_offset")
    assert [[each[name] for name in asked] for each in answer["partitions"]] == [
        [None, None, 7, 1_331],
        [None, 70, 20, 90],
    ]
    assert (answer["bad_partitions"]["BEYOND_END"], answer["bad_partitions"]["NEVER_COMMITTED"]) == (1, 1)


def test_the_recent_events_of_a_group_are_told_without_parsing_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    website = take(make_website(), *(make_event(total_lag=lag) for lag in range(20)))
    parsed: list[int] = []

    def parse(body: bytes, **facts: Any) -> LagEvent:
        parsed.append(len(body))
        return parse_stored(body, **facts)

    monkeypatch.setattr(rows, "parse_stored", parse)
    answer = get(website, "/api/v1/group", cluster="prod-eu", consumer="orders-svc")
    assert [event["lag"] for event in answer["events"]] == [*reversed(range(20))]
    assert len(parsed) == 1  # the newest one, for its partitions


def test_an_event_that_lists_every_partition_is_marked() -> None:
    website = take(make_website(), make_event(source=Source.REST))
    answer = get(website, "/api/v1/group", cluster="prod-eu", consumer="orders-svc")
    assert answer["all_partitions_listed"] is True


@pytest.mark.parametrize(
    ("moved_at_ms", "at"), [(0, None), (1_746_950_300_000, "2025-05-11T07:58:20Z")], ids=["no move seen", "a move seen"]
)
def test_a_sample_of_watch_is_no_commit_and_the_last_commit_is_the_last_move_that_a_poll_saw(
    moved_at_ms: int, at: str | None
) -> None:
    sampled = make_partition(status_text="STALL", moved_at_ms=moved_at_ms)
    website = take(make_website(), make_event(source=Source.KAFKA, max_lag=sampled, partitions=(sampled,)))
    answer = get(website, "/api/v1/group", cluster="prod-eu", consumer="orders-svc")
    assert answer["last_commit_at"] == at
    [partition] = answer["partitions"]
    assert (partition["start"]["committed_at"], partition["end"]["committed_at"]) == (None, at)
    metrics = website.client.get("/metrics").text
    assert ("karrot_consumer_last_commit_timestamp_seconds{" in metrics) == (at is not None)


def test_a_time_outside_the_calendar_is_given_only_as_a_number() -> None:
    misread = OffsetSample(1, 7_850_000_000_000_000_000, lag=None)
    website = take(make_website(), make_event(max_lag=make_partition(end=misread)))
    answer = get(website, "/api/v1/group", cluster="prod-eu", consumer="orders-svc")
    end = answer["max_lag_partition"]["end"]
    assert (end["timestamp_ms"], end["committed_at"]) == (7_850_000_000_000_000_000, None)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({}, id="neither name"),
        pytest.param({"cluster": "a"}, id="only the cluster"),
        pytest.param({"consumer": "b"}, id="only the consumer"),
    ],
)
def test_a_group_has_two_names(query: dict[str, str]) -> None:
    response = make_website().client.get("/api/v1/group", query_string=query)
    assert response.json is not None
    assert (response.status_code, response.json["code"]) == (400, "invalid_field")


def test_an_unknown_or_silent_group_is_not_found() -> None:
    website = take(make_website(), make_event())
    website.clock.advance(300_001)
    for consumer in ("orders-svc", "nobody"):
        response = website.client.get("/api/v1/group", query_string={"cluster": "prod-eu", "consumer": consumer})
        assert response.json is not None
        assert (response.status_code, response.json["code"]) == (404, "not_found")


def test_reporters_are_listed_with_their_backlog() -> None:
    website = make_website(reporters=("prometheus", "stdout", "cloudwatch"))
    log = website.log
    for _ in range(3):
        take(website, make_event())
        website.clock.advance(2000)
    log.save_reporter(ReporterState("stdout", Cursor(log.log_id, 1), "failing", "no room", 1_800_000_000_000, None))
    log.save_reporter(ReporterState("cloudwatch", None, "ok"))
    log.save_reporter(ReporterState("switched-off", Cursor(log.log_id, 1), "ok"))
    unknown = {"backlog_events": None, "backlog_age_seconds": None, "last_success_at": None}
    quiet = {"last_error": None, "last_error_at": None, "last_send": None}
    log.remember(
        "cloudwatch",
        "report",
        msgspec.json.encode(
            Report(
                at=instant(1_800_000_000_000),
                sent_count=2,
                facts=(Fact("namespace", "Karrot"),),
                sent=(Sent("Lag {Cluster=a}", 5.0, None, instant(1_800_000_000_000)),),
                refused=(RefusedDatum("Lag {Cluster=b}", "value", "it is no number", instant(1_800_000_000_000)),),
            )
        ),
    )
    log.remember("stdout", "report", b"of another version")
    assert get(website, "/api/v1/reporters") == {
        "reporters": [
            {"name": "prometheus", "state": "idle", "cursor": None, **unknown, **quiet},
            {
                "name": "stdout",
                "state": "failing",
                "cursor": {"log_id": log.log_id, "seq": 1},
                "backlog_events": 2,
                "backlog_age_seconds": 4.0,
                "last_success_at": None,
                "last_error": "no room",
                "last_error_at": "2027-01-15T08:00:00Z",
                "last_send": None,
            },
            {
                "name": "cloudwatch",
                "state": "ok",
                "cursor": None,
                "backlog_events": 3,
                "backlog_age_seconds": 6.0,
                "last_success_at": None,
                **quiet,
                "last_send": {
                    "at": "2027-01-15T08:00:00Z",
                    "sent_count": 2,
                    "facts": [{"name": "namespace", "text": "Karrot"}],
                    "sent": [
                        {
                            "what": "Lag {Cluster=a}",
                            "value": 5.0,
                            "unit": None,
                            "observed_at": "2027-01-15T08:00:00Z",
                        }
                    ],
                    "refused": [
                        {
                            "what": "Lag {Cluster=b}",
                            "reason": "value",
                            "text": "it is no number",
                            "at": "2027-01-15T08:00:00Z",
                        }
                    ],
                },
            },
        ],
        "leader": None,
    }


@pytest.fixture(scope="module")
def shared() -> Website:
    return make_website()


@given(event=event_strategy())
@examples(150)
def test_any_event_can_be_returned(shared: Website, event: LagEvent) -> None:
    website = shared
    website.forget()
    website.log.append(event, to_wire(event))
    for path in ("/api/v1/groups", "/api/v1/group", "/", "/group"):
        query = {"cluster": event.cluster, "consumer": event.consumer} if path.endswith("group") else {}
        response = website.client.get(path, query_string=query)
        assert response.status_code in ((200, 404) if path.endswith("group") else (200,)), path


@given(query=st.dictionaries(st.sampled_from(["cluster", "status", "q", "limit", "after", "page"]), st.text()))
@examples(200)
def test_no_query_causes_an_internal_error(shared: Website, query: dict[str, str]) -> None:
    website = take(shared, make_event())
    for path in ("/api/v1/groups", "/"):
        assert website.client.get(path, query_string=query).status_code in (200, 400)


def test_the_longest_names_do_not_end_the_pages() -> None:
    website = make_website()
    long = ["a", *("b" * 1020 + tail for tail in ("", "1", "2", "3")), "b" * 300, "c"]
    for consumer in long:
        assert website.client.post("/burrow", data=to_wire(make_event(consumer=consumer))).status_code == 202
    found: list[str] = []
    after = ""
    while after is not None:
        page = get(website, "/api/v1/groups", limit=1, **({"after": after} if after else {}))
        found += [group["consumer"] for group in page["groups"]]
        after = page["next"]
    assert found == sorted(long)


def test_rejects_have_the_beginning_of_their_body() -> None:
    website = make_website()
    website.client.post("/burrow", data=b'{"events": []}')
    website.client.post("/burrow", data=b"\xff{")
    newest, oldest = get(website, "/api/v1/rejects")["rejects"]
    assert (newest["code"], newest["body"]) == ("not_utf8", "\ufffd{")
    assert oldest["body"] == '{"events": []}'
    assert oldest.keys() == {"received_at", "code", "detail", "source", "body"}
    assert get(website, "/api/v1/rejects", limit=1)["rejects"] == [newest]
    assert website.client.get("/api/v1/rejects?limit=0").status_code == 400
