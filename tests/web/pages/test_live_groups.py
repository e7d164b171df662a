from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.event import GroupKey
from karrot.eventlog.base import GroupState, IncidentState
from karrot.eventlog.event_summary import summarize
from karrot.web.pages.live_groups import RankedGroups, Ranking
from support.burrow.lag_events import make_event, make_partition


def state(name: str, status: str, lag: int | None, **facts: Any) -> GroupState:
    event = make_event(cluster=name[-1:], consumer=name, status_text=status, total_lag=lag, **facts)
    return GroupState(GroupKey(event.cluster, event.consumer), 1, 0, summarize(event, 0), IncidentState())


NAMES = st.sampled_from(["a1", "a2", "b1", "b2", "c1", *(f"d{number}" for number in range(30))]) | st.just("burrow-x")
STATES = st.tuples(st.sampled_from(["OK", "WARN", "ERR", "ODD"]), st.none() | st.integers(0, 3)) | st.none()


@settings(max_examples=50)
@given(st.lists(st.dictionaries(NAMES, STATES, max_size=40), max_size=6))
def test_what_changed_a_little_at_a_time_stands_as_if_it_was_sorted_at_once(
    told: list[dict[str, tuple[str, int | None] | None]],
) -> None:
    ranking = Ranking()
    known: dict[GroupKey, GroupState] = {}
    for changes in told:
        states = {GroupKey(name[-1:], name): facts and state(name, *facts) for name, facts in changes.items()}
        ranking.update(states)
        known = {key: each for key, each in (known | states).items() if each}
        assert ranking.standing() == RankedGroups.of(known.values())
    assert {each.key: each for each in ranking.states()} == known


def test_burrow_s_own_groups_are_counted_apart_and_those_behind_named_the_worst_first() -> None:
    topic = make_partition(topic="__consumer_offsets")
    own = [state(f"burrow-{name}", status, 1, max_lag=topic) for name, status in (("a", "WARN"), ("b", "ERR"))]
    standing = RankedGroups.of([*own, state("burrow-c", "OK", 0, max_lag=topic), state("burrow-s rival", "WARN", 1)])
    assert standing.counts == {"WARN": 1}
    assert standing.of_burrow == {"ERR": 1, "WARN": 1, "OK": 1}
    assert standing.burrow_behind == ["b", "a"]
