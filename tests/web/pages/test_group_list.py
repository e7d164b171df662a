from typing import Any

import pytest

from karrot.event import AgeKind, GroupKey, LagAge, TopicPartition
from karrot.eventlog.base import GroupState, IncidentState
from karrot.eventlog.next_group_state import summarize
from karrot.web.api.routes import GroupFilter
from karrot.web.pages.group_list import Order, RankedGroups, rank, select
from support.burrow.lag_events import make_event, make_partition
from support.web.website import make_website


@pytest.fixture(scope="module")
def ranked() -> RankedGroups:
    website = make_website()
    for name, lag, status in (("b", 5, "OK"), ("A", None, "WARN"), ("c", 9, "ERR")):
        incident = None if status == "OK" else name
        event = make_event(consumer=name, total_lag=lag, status_text=status, incident_id=incident)
        website.context.intake.accept(event)
    return rank(website.log.live())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("status", "cAb"),
        ("-status", "bAc"),
        ("group", "Abc"),
        ("-group", "cbA"),
        ("lag", "cbA"),
        ("-lag", "bcA"),
        ("incident", "cAb"),
    ],
)
def test_groups_sort_by_column_in_both_directions_with_unknown_values_last(
    ranked: RankedGroups, text: str, names: str
) -> None:
    order = Order.read(text)
    assert order is not None
    assert str(order) == text
    found, rows = select(ranked, GroupFilter(), order)
    assert "".join(state.key.consumer for state in rows) == names
    assert found.worst is not None
    assert found.worst.key.consumer == "c"


def test_an_unknown_column_is_not_a_sort_order() -> None:
    assert Order.read("size") is None
    assert Order.read("--lag") is None


def test_healthy_groups_have_no_worst_one(ranked: RankedGroups) -> None:
    assert select(ranked, GroupFilter(text="b"))[0].worst is None


def test_tests_come_last_and_count_in_no_status() -> None:
    website = make_website()
    for cluster, status in (("prod-eu", "OK"), ("karrot-sample", "ERR"), ("try", "WARN")):
        event = make_event(cluster=cluster, status_text=status, incident_id=None)
        website.context.intake.accept(event)
    of_burrow = make_partition(topic="__consumer_offsets")
    website.context.intake.accept(make_event(cluster="try", consumer="burrow-try", max_lag=of_burrow))
    ranked = rank(website.log.live())
    found, rows = select(ranked, GroupFilter())
    assert ranked.burrow_behind == []
    assert (found.counts, found.worst, len(rows)) == ({"OK": 1, "TEST": 3}, None, 4)
    assert rows[0].key.cluster == "prod-eu"
    assert select(ranked, GroupFilter(status="ERR"))[1] == []
    sample, rows = select(ranked, GroupFilter(cluster="karrot-sample"))
    assert (sample.counts, sample.worst, len(rows)) == ({"TEST": 1}, None, 1)


def state(name: str, status: str, lag: int | None, **facts: Any) -> GroupState:
    event = make_event(cluster=name[-1:], consumer=name, status_text=status, total_lag=lag, **facts)
    return GroupState(GroupKey(event.cluster, event.consumer), 1, 0, summarize(event, 0), IncidentState())


def test_a_lower_bound_of_the_lag_in_seconds_ranks_after_every_known_value_by_its_lag() -> None:
    place = TopicPartition("t", 0)

    def aged(name: str, lag: int, seconds: float, kind: AgeKind) -> GroupState:
        event = make_event(consumer=name, status_text="ERR", total_lag=lag)
        summary = summarize(event, 0, LagAge(seconds, kind, place))
        return GroupState(GroupKey(event.cluster, name), 1, 0, summary, IncidentState())

    states = [
        aged("idle tail", 4, 80, AgeKind.AT_LEAST),
        aged("old backlog", 9_000, 70, AgeKind.AT_LEAST),
        aged("dead", 323, 60, AgeKind.EXACT),
        aged("slow", 99, 61, AgeKind.EXTRAPOLATED),
    ]
    ranked = rank(states)
    worst_first = ["slow", "dead", "old backlog", "idle tail"]
    assert [each.key.consumer for each in ranked.worst_first] == worst_first
    for text in ("behind", "-behind"):
        order = Order.read(text)
        assert order is not None
        found = [each.key.consumer for each in order.sorted(ranked.worst_first)]
        assert found[2:] == worst_first[2:]


def test_burrow_s_own_groups_are_counted_separately_and_lagging_ones_are_named_worst_first() -> None:
    topic = make_partition(topic="__consumer_offsets")
    own = [state(f"burrow-{name}", status, 1, max_lag=topic) for name, status in (("a", "WARN"), ("b", "ERR"))]
    ranked = rank([*own, state("burrow-c", "OK", 0, max_lag=topic), state("burrow-s rival", "WARN", 1)])
    assert ranked.counts == {"WARN": 1, "BURROW": 3}
    assert ranked.burrow_behind == ["b", "a"]
