"""Burrow's webhooks, its REST API and Karrot's own rules report on one group: what scrapers and readers then see."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from karrot.burrow.payload import parse_rest, to_wire
from karrot.event import ABANDONED, LEFT, FirstUnread, GroupKey, OffsetSample, PartitionLag, Source
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.prometheus import build, render
from support.burrow.lag_events import make_event, make_partition
from support.burrow.recorded_bodies import recorded_rest_answer
from support.eventlog.appended_events import append_event
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context
from support.web.website import Website, make_website

TOPIC_LAG, PARTITION_LAG, PARTITION_STATUS = (
    "karrot_consumer_topic_lag",
    "karrot_partition_lag",
    "karrot_partition_status_code",
)
STATUS = "karrot_consumer_status_code"
SECOND = "karrot_consumer_second_opinion"
GROUP = GroupKey("stack", "skewed-consumer-group")
"""The group of the recorded REST answer: WARN, with lags of 268, 139 and 129 on the partitions of skewed-topic."""

PAST_RECORDS = OffsetSample(508_100, 1_746_950_399_000, lag=0)


@pytest.fixture
def website() -> Website:
    return website_of(MemoryEventLog(clock := ManualClock()), clock)


def website_of(log: MemoryEventLog, clock: ManualClock) -> Website:
    context = make_context("prometheus", {"partition_metrics": "true", "topic_metrics": "true"}, log=log)
    collectors = {"prometheus": build(context).collector(log)}
    return make_website(clock=clock, log=log, render_metrics=lambda accept, names: render(collectors, accept, names))


def part(number: int, lag: int | None, status: str = "OK", topic: str = "skewed-topic", **more: Any) -> PartitionLag:
    return make_partition(topic=topic, partition=number, current_lag=lag, status_text=status, **more)


def post(website: Website, status: str, *bad: PartitionLag, largest: PartitionLag | None = None) -> None:
    """Post a webhook of Burrow, which lists only the bad partitions and the one with the largest lag."""
    incident = {} if status != "OK" else {"incident_id": None, "incident_start": None}
    event = make_event(
        **GROUP._asdict(),
        status_text=status,
        partitions=bad,
        max_lag=largest or (bad[0] if bad else None),
        partition_count=3,
        **incident,
    )
    assert website.client.post("/burrow", data=to_wire(event)).status_code == 202


def answer(website: Website) -> None:
    """Take a recorded answer of Burrow's REST API, which lists all partitions."""
    event = parse_rest(recorded_rest_answer("lag-warn"), observed_at_ms=website.clock.wall_ms())
    assert event is not None
    website.context.intake.accept(event)


def take(website: Website, source: Source, status: str, partitions: Iterable[PartitionLag]) -> None:
    listed = tuple(partitions)
    event = make_event(
        **GROUP._asdict(),
        status_text=status,
        source=source,
        incident_id=None,
        incident_start=None,
        partitions=listed,
        max_lag=listed[0],
        partition_count=len(listed),
        observed_at_ms=website.clock.wall_ms(),
    )
    website.context.intake.accept(event)


def poll(website: Website, status: str, *partitions: PartitionLag) -> None:
    """Take a verdict of Karrot's own rules on what it read from Kafka, ten seconds after the last event."""
    website.clock.advance(10_000)
    take(website, Source.KAFKA, status, partitions)


def scrape(website: Website, name: str) -> dict[Sequence[str], float]:
    """The samples of a metric, by the values of their labels in alphabetical order, without cluster and consumer."""
    families = text_string_to_metric_families(website.client.get("/metrics").text)
    samples = [each for family in families for each in family.samples if each.name == name]
    return {
        tuple(value for label, value in sorted(each.labels.items()) if label not in {"cluster", "consumer"}): each.value
        for each in samples
    }


def lags(website: Website) -> dict[str, float]:
    return {place[0]: value for place, value in scrape(website, PARTITION_LAG).items()}


def statuses(website: Website) -> dict[str, float]:
    return {place[0]: value for place, value in scrape(website, PARTITION_STATUS).items()}


def detail(website: Website) -> Any:
    return website.client.get("/api/v1/group", query_string=GROUP._asdict()).json


def page(website: Website) -> str:
    return " ".join(website.client.get("/group", query_string=GROUP._asdict()).text.split())


def test_no_series_of_a_topic_or_a_partition_ends_between_two_complete_lists(website: Website) -> None:
    seen = []
    for second in range(0, 480, 10):
        if second % 120 == 0:
            answer(website)
        if second % 30 == 10:
            post(website, "OK", largest=part(0, second))
        seen.append((set(scrape(website, TOPIC_LAG)), set(lags(website)), set(statuses(website))))
        website.clock.advance(10_000)
    assert seen == [({("skewed-topic",)}, {"0", "1", "2"}, {"0", "1", "2"})] * len(seen)


def test_a_webhook_changes_the_partitions_that_it_lists_and_the_others_are_ok(website: Website) -> None:
    answer(website)
    assert (lags(website), statuses(website)) == ({"0": 268, "1": 139, "2": 129}, {"0": 2, "1": 2, "2": 2})
    website.clock.advance(10_000)
    post(website, "ERR", part(1, 700, "STOP"), largest=part(2, 900))
    assert (lags(website), statuses(website)) == ({"0": 268, "1": 700, "2": 900}, {"0": 1, "1": 4, "2": 1})
    website.clock.advance(10_000)
    post(website, "OK", largest=part(0, 3))
    assert (lags(website), statuses(website)) == ({"0": 3, "1": 700, "2": 900}, {"0": 1, "1": 1, "2": 1})


def test_the_lag_of_a_topic_is_the_sum_of_one_complete_list(website: Website) -> None:
    answer(website)
    post(website, "ERR", part(1, 1_000_000, "STOP"))
    assert scrape(website, TOPIC_LAG) == {("skewed-topic",): 268 + 139 + 129}
    take(website, Source.REST, "ERR", [part(0, 1), part(1, 1_000_000, "STOP"), part(2, 2)])
    assert scrape(website, TOPIC_LAG) == {("skewed-topic",): 1_000_003}


def test_a_complete_list_counts_until_stale_after(website: Website) -> None:
    answer(website)
    for _ in range(10):
        website.clock.advance(30_000)
        post(website, "WARN", part(0, 5, "WARN"))
    assert (set(scrape(website, TOPIC_LAG)), set(lags(website))) == ({("skewed-topic",)}, {"0", "1", "2"})
    website.clock.advance(1)
    assert (scrape(website, TOPIC_LAG), lags(website)) == ({}, {"0": 5})


def test_a_topic_and_a_partition_that_the_next_complete_list_lacks_end_with_it(website: Website) -> None:
    take(website, Source.REST, "OK", [part(0, 1), part(1, 2), part(0, 7, topic="deleted")])
    post(website, "ERR", part(1, 9, "STOP"))
    assert scrape(website, TOPIC_LAG) == {("skewed-topic",): 3, ("deleted",): 7}
    take(website, Source.REST, "OK", [part(0, 4)])
    assert scrape(website, TOPIC_LAG) == {("skewed-topic",): 4}
    assert scrape(website, PARTITION_LAG) == {("0", "skewed-topic"): 4}


def test_a_deleted_group_that_comes_back_has_nothing_of_its_old_list(website: Website) -> None:
    answer(website)
    take(website, Source.REST, "NOTFOUND", [part(0, None)])
    post(website, "WARN", part(1, 9, "WARN"))
    assert (scrape(website, TOPIC_LAG), lags(website)) == ({}, {"1": 9})


def test_a_list_that_was_asked_for_before_the_last_webhook_still_gives_all_partitions(website: Website) -> None:
    event = parse_rest(recorded_rest_answer("lag-warn"), observed_at_ms=website.clock.wall_ms())
    assert event is not None
    website.clock.advance(2_000)
    post(website, "ERR", part(1, 700, "STOP"))
    website.context.intake.accept(event, age_ms=2_000)
    assert scrape(website, STATUS) == {(): 3}
    assert set(lags(website)) == {"0", "1", "2"}
    assert statuses(website)["1"] == 4


def test_the_api_and_the_page_have_all_partitions_between_two_lists(website: Website) -> None:
    answer(website)
    listed_at = detail(website)["partitions_listed_at"]
    website.clock.advance(30_000)
    post(website, "ERR", part(1, 700, "STOP"))
    found = detail(website)
    assert [(each["partition"], each["status"], each["lag"]) for each in found["partitions"]] == [
        (0, "OK", 268),
        (1, "STOP", 700),
        (2, "OK", 129),
    ]
    assert (found["all_partitions_listed"], found["partitions_listed_at"]) == (True, listed_at)
    text = page(website)
    assert text.count('<th role="rowheader" scope="row"><bdi class="name">skewed-topic') == 3
    assert "All partitions were last listed on" in text
    assert "Burrow lists only the partitions worse than OK" not in text


def test_without_a_complete_list_the_api_and_the_page_say_that_partitions_are_missing(website: Website) -> None:
    post(website, "ERR", part(1, 700, "STOP"))
    found = detail(website)
    assert (found["all_partitions_listed"], found["partitions_listed_at"]) == (False, None)
    assert "Burrow lists only the partitions worse than OK" in page(website)


def test_a_list_and_a_second_opinion_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_sqlite(tmp_path, clock)
    append_event(log, source=Source.KAFKA, status_text="OK", partitions=(part(0, 1), part(1, 2)))
    append_event(log, status_text="ERR", partitions=(part(1, 9, "STOP"),))
    log.close()
    log = open_sqlite(tmp_path, clock)
    state = log.group(GroupKey("prod-eu", "orders-svc"))
    assert state is not None
    listed = log.listed(state)
    assert listed is not None
    assert listed.complete is not None
    assert listed.second == listed.complete
    log.close()


def nothing_to_read(number: int) -> PartitionLag:
    return part(number, 0, end=PAST_RECORDS, log_end=508_109, first_unread=FirstUnread(508_109))


def test_burrows_verdict_is_shown_as_it_is_with_what_kafka_proves_beside_it(website: Website) -> None:
    for _ in range(6):
        post(website, "ERR", part(0, 9, "STOP"), part(1, 9, "STOP"), part(5, 7, "STOP", topic="old"))
        for _ in range(3):
            poll(website, "OK", nothing_to_read(0), nothing_to_read(1), part(5, None, LEFT, topic="old"))
            assert scrape(website, STATUS) == {(): 3}
            assert scrape(website, SECOND) == {("kafka", "OK"): 1}
    found = detail(website)
    assert (found["status"], found["source"], found["incident"] is None) == ("ERR", "webhook", False)
    assert found["second_opinion"] | {"observed_at": None} == {
        "source": "kafka",
        "status": "OK",
        "observed_at": None,
        "found": "nothing to read (2), the group has left the topic (1)",
    }
    assert statuses(website) == {"0": 4, "1": 4, "5": 4}
    assert "Kafka&#39;s own offsets say OK. On the bad partitions: nothing to read (2), the group has left" in page(
        website
    )


def test_a_fault_that_only_kafka_shows_stands_beside_burrows_ok(website: Website) -> None:
    for _ in range(6):
        poll(website, "ERR", part(0, None, "BEYOND_END", log_end=7), part(1, 1))
        post(website, "OK", largest=part(1, 1))
        assert scrape(website, STATUS) == {(): 1}
    assert scrape(website, SECOND) == {("kafka", "ERR"): 1}
    assert "own offsets say ERR" in page(website)


def test_two_sources_that_agree_give_no_second_opinion(website: Website) -> None:
    post(website, "ERR", part(0, 9, "STOP"))
    poll(website, "ERR", part(0, 9, "STOP"))
    assert scrape(website, SECOND) == {}
    assert detail(website)["second_opinion"] is None
    assert "other source" not in page(website)


@pytest.mark.parametrize("every_s", [10, 1800])
def test_a_second_opinion_ends_soon_after_its_source_with_a_long_stale_time_too(every_s: int) -> None:
    clock = ManualClock()
    website = website_of(MemoryEventLog(clock, stale_after_ms=86_400_000), clock)
    post(website, "OK", largest=part(0, 9))
    for _ in range(3):
        clock.advance(1000 * every_s)
        take(website, Source.KAFKA, "ERR", [part(0, None, "BEYOND_END", log_end=7)])
        post(website, "OK", largest=part(0, 9))
        assert scrape(website, SECOND) == {("kafka", "ERR"): 1}
    clock.advance(max(150_000, 3000 * every_s))
    assert scrape(website, SECOND) == {("kafka", "ERR"): 1}
    clock.advance(1)
    assert (scrape(website, SECOND), detail(website)["second_opinion"]) == ({}, None)
    assert "own offsets say" not in page(website)
    post(website, "OK", largest=part(0, 9))
    assert scrape(website, SECOND) == {}


def test_burrow_and_resync_are_one_source(website: Website) -> None:
    post(website, "ERR", part(0, 9, "STOP"))
    take(website, Source.REST, "OK", [part(0, 0)])
    assert (scrape(website, STATUS), scrape(website, SECOND)) == ({(): 1}, {})


def test_the_verdict_of_a_burrow_that_became_silent_gives_way_before_the_group_expires(website: Website) -> None:
    post(website, "ERR", part(0, 9, "STOP"))
    seen = []
    for _ in range(40):
        poll(website, "OK", part(0, 0))
        assert website.log.expire() == 0
        seen.append((scrape(website, STATUS), scrape(website, SECOND)))
    shown = ({(): 3.0}, {("kafka", "OK"): 1.0})
    assert seen == [shown] * 14 + [({(): 1.0}, {})] * 26


def test_a_group_that_kafka_calls_abandoned_keeps_its_series_while_burrow_judges_it(website: Website) -> None:
    for _ in range(3):
        post(website, "OK", largest=part(0, 9))
        poll(website, "OK", part(0, 9, ABANDONED))
        assert scrape(website, STATUS) == {(): 1}
    assert scrape(website, SECOND) == {("kafka", ABANDONED): 1}


def test_a_group_that_either_source_calls_deleted_is_deleted(website: Website) -> None:
    post(website, "ERR", part(0, 9, "STOP"))
    poll(website, "NOTFOUND", part(0, None))
    assert website.log.group(GROUP) is None
