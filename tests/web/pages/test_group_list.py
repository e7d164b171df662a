import pytest

from karrot.web.api.group_query import GroupFilter
from karrot.web.pages.group_list import Order, overview
from karrot.web.pages.live_groups_ranking import RankedGroups
from support.burrow.lag_events import make_event, make_partition
from support.web.ranked_groups import rank
from support.web.website import make_website


@pytest.fixture(scope="module")
def ranked() -> RankedGroups:
    website = make_website()
    for name, lag, status in (("b", 5, "OK"), ("A", None, "WARN"), ("c", 9, "ERR")):
        incident = None if status == "OK" else name
        event = make_event(consumer=name, total_lag=lag, status_text=status, incident_id=incident)
        website.context.intake.accept(event)
    return rank(website.log.latest())


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
    found = overview(ranked, GroupFilter(), page=1, size=10, order=order)
    assert "".join(state.key.consumer for state in found.rows) == names
    assert found.worst is not None
    assert found.worst.key.consumer == "c"


def test_an_unknown_column_is_not_a_sort_order() -> None:
    assert Order.read("size") is None
    assert Order.read("--lag") is None


def test_healthy_groups_have_no_worst_one(ranked: RankedGroups) -> None:
    assert overview(ranked, GroupFilter(text="b"), page=1, size=10).worst is None


def test_tests_come_last_and_count_in_no_status() -> None:
    website = make_website()
    for cluster, status in (("prod-eu", "OK"), ("karrot-sample", "ERR"), ("try", "WARN")):
        event = make_event(cluster=cluster, status_text=status, incident_id=None)
        website.context.intake.accept(event)
    of_burrow = make_partition(topic="__consumer_offsets")
    website.context.intake.accept(make_event(cluster="try", consumer="burrow-try", max_lag=of_burrow))
    ranked = rank(website.log.latest())
    found = overview(ranked, GroupFilter(), page=1, size=10)
    assert (found.of_burrow, ranked.burrow_behind) == ({}, [])
    assert (found.counts, found.worst, found.total) == ({"OK": 1, "TEST": 3}, None, 4)
    assert found.rows[0].key.cluster == "prod-eu"
    assert overview(ranked, GroupFilter(status="ERR"), page=1, size=10).rows == []
    sample = overview(ranked, GroupFilter(cluster="karrot-sample"), page=1, size=10)
    assert (sample.counts, sample.worst, len(sample.rows)) == ({"TEST": 1}, None, 1)
