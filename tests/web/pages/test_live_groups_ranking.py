from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.event import AgeKind, GroupKey, LagAge, TopicPartition
from karrot.eventlog.base import GroupState, IncidentState
from karrot.eventlog.group_state import summarize
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import Intake
from karrot.web.pages.group_list import Order
from karrot.web.pages.live_groups_ranking import LiveRanking, Ranking
from support.burrow.lag_events import make_event, make_partition
from support.manual_clock import ManualClock, SlowClock
from support.web.ranked_groups import rank
from support.web.website import make_website


def state(name: str, status: str, lag: int | None, **facts: Any) -> GroupState:
    event = make_event(cluster=name[-1:], consumer=name, status_text=status, total_lag=lag, **facts)
    return GroupState(GroupKey(event.cluster, event.consumer), 1, 0, summarize(event, 0), IncidentState())


NAMES = st.sampled_from(["a1", "a2", "b1", "b2", "c1", *(f"d{number}" for number in range(30))]) | st.just("burrow-x")
STATES = st.tuples(st.sampled_from(["OK", "WARN", "ERR", "ODD"]), st.none() | st.integers(0, 3)) | st.none()


@settings(max_examples=50)
@given(st.lists(st.dictionaries(NAMES, STATES, max_size=40), max_size=6))
def test_a_list_with_small_changes_has_the_same_order_as_a_sorted_one(
    told: list[dict[str, tuple[str, int | None] | None]],
) -> None:
    ranking = Ranking()
    known: dict[GroupKey, GroupState] = {}
    for changes in told:
        states = {GroupKey(name[-1:], name): facts and state(name, *facts) for name, facts in changes.items()}
        ranking.update(states)
        known = {key: each for key, each in (known | states).items() if each}
        assert ranking.ranked() == rank(known.values())
    assert {each.key: each for each in ranking.states()} == known


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
    assert ranked.counts == {"WARN": 1}
    assert ranked.of_burrow == {"ERR": 1, "WARN": 1, "OK": 1}
    assert ranked.burrow_behind == ["b", "a"]


def test_the_groups_are_read_again_only_after_a_time_in_proportion_to_the_reading_time() -> None:
    clock = SlowClock()
    log = MemoryEventLog(ManualClock())
    intake = Intake(log, ManualClock())
    live = LiveRanking(log, clock)
    intake.accept(make_event())
    assert len(live.ranked().worst_first) == 1
    intake.accept(make_event(consumer="new"))
    assert len(live.ranked().worst_first) == 1
    clock.advance(2000)
    assert len(live.ranked().worst_first) == 2


def test_groups_that_are_read_quickly_are_always_current() -> None:
    website = make_website()
    live = LiveRanking(website.log, website.clock)

    def agrees() -> bool:
        return sorted(live.ranked().worst_first, key=lambda state: state.key) == list(website.log.latest())

    def tell(**facts: Any) -> None:
        website.context.intake.accept(make_event(observed_at_ms=website.clock.wall, **facts))
        website.clock.advance(1000)

    assert agrees()
    tell(total_lag=1)
    tell(total_lag=2)
    tell(consumer="other")
    assert agrees()
    website.clock.advance(200_000)
    tell(total_lag=3)
    assert agrees()
    tell(status_text="NOTFOUND", incident_id=None)
    assert len(website.log.latest()) == 1
    assert agrees()
    website.clock.advance(150_000)
    assert len(website.log.latest()) == 0
    assert agrees()
