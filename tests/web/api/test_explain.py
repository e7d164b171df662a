import json
from typing import Any

import pytest

from karrot.diagnosis.explanations import Explanation
from karrot.event import LagEvent, Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.watch_data_of_groups import GroupHealth, WatchedCluster
from support.burrow.lag_events import make_event, make_partition
from support.web.website import Website, make_website

STOPPED = make_partition(status_text="STOP")


def stopped(**fields: Any) -> LagEvent:
    return make_event(status_text="ERR", max_lag=STOPPED, partitions=(STOPPED,), **fields)


def take(*events: LagEvent, **settings: Any) -> Website:
    website = make_website(**settings)
    for event in events:
        website.context.intake.accept(event)
    return website


def get(website: Website, status: int = 200, **query: str) -> Any:
    answer = website.client.get("/api/v1/explain", query_string=query)
    assert answer.status_code == status, answer.text
    return json.loads(answer.data)


def test_a_webhook_alone_does_not_prove_why_a_partition_stopped() -> None:
    event = stopped()
    found = get(take(event), cluster=event.cluster, consumer=event.consumer)
    assert set(found) == set(Explanation.__struct_fields__)
    assert found["cause"] == "not_known"
    assert "1 of 12 partitions stopped" in found["sentence"]
    assert any("whether the group has members" in each.casefold() for each in found["missing"])
    assert found["commands"][-1]["command"].startswith("karrot lag --burrow http://burrow:8000 --cluster ")


def test_a_group_without_members_is_explained_with_the_brokers_of_the_settings() -> None:
    event = stopped(source=Source.KAFKA)
    settings = {"KARROT_WATCH_CLUSTER": event.cluster, "KARROT_WATCH_BOOTSTRAP": "b:9"}
    website = take(event, effective_settings=lambda: settings)
    empty = GroupHealth(event.consumer, "Empty", 0, 1, 3, 0, None)
    poll = WatchedCluster(event.cluster, 1, 0.1, website.log.log_time_ms(), 300_000, (empty,))
    website.log.lead()
    watch_data_of_groups.keep(website.log, poll)
    found = get(website, cluster=event.cluster, consumer=event.consumer)
    assert found["cause"] == "no_members"
    lines = [each["command"] for each in found["commands"]]
    assert lines[-1].endswith("--all-topics --reset-offsets --to-latest --dry-run")
    assert all(line.startswith("kafka-consumer-groups.sh --bootstrap-server b:9 ") for line in lines)
    page = website.client.get("/group", query_string={"cluster": event.cluster, "consumer": event.consumer}).text
    for words in (found["sentence"], *found["evidence"], found["check"], *lines):
        assert words in page


def test_a_group_that_is_ok_needs_no_command() -> None:
    event = make_event(status_text="OK")
    found = get(take(event), cluster=event.cluster, consumer=event.consumer)
    assert (found["cause"], found["commands"], found["missing"]) == ("none", [], [])


def test_the_cluster_may_be_missing_if_only_one_has_the_group() -> None:
    event = make_event()
    assert get(take(event), consumer=event.consumer)["cluster"] == event.cluster
    problem = get(take(event, event._replace(cluster="other")), 400, consumer=event.consumer)
    assert (problem["code"], problem["path"]) == ("invalid_field", "cluster")
    assert f"Several clusters have this group: other, {event.cluster}." in problem["detail"]


def test_a_group_that_is_not_live_is_a_problem() -> None:
    assert get(take(), 404, consumer="nobody")["code"] == "not_found"
    assert get(take(), 404, cluster="c", consumer="nobody")["code"] == "not_found"
    assert get(take(), 400, cluster="c")["path"] == "consumer"


@pytest.mark.parametrize("cluster", [{}, {"cluster": "prod-eu"}], ids=["without a cluster", "with a cluster"])
def test_a_group_that_watch_has_not_judged_yet_is_known(cluster: dict[str, str]) -> None:
    website = take()
    website.log.lead()
    health = GroupHealth("orders", "Stable", 1, 1, 0, None, None, 0, 2)
    watch_data_of_groups.keep(
        website.log, WatchedCluster("prod-eu", 1, 0.1, website.log.log_time_ms(), 300_000, (health,))
    )
    problem = get(website, 404, consumer="orders", **cluster)
    assert problem["code"] == "not_judged"
    assert problem["detail"].startswith("`watch` knows the group (state Stable), but has not judged it yet.")
    answer = website.client.get("/api/v1/group", query_string={"cluster": "prod-eu", "consumer": "orders"})
    assert (answer.status_code, answer.get_json()["detail"]) == (404, problem["detail"])
    page = website.client.get("/group", query_string={"cluster": "prod-eu", "consumer": "orders"}).text
    assert "<code>watch</code> knows the group, but has not judged it yet" in page
    assert "Its members own 2 partitions without a committed offset." in page
    assert get(website, 404, consumer="nobody")["code"] == "not_found"
