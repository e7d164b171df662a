"""No cause is named if the facts leave another one."""

from typing import Any

from karrot.diagnosis.explanations import Explanation, explain
from karrot.diagnosis.known_facts import Known
from karrot.event import GroupKey, LagEvent, OffsetSample, PartitionLag, Source
from karrot.eventlog.base import GroupState, IncidentState
from karrot.eventlog.next_group_state import summarize
from karrot.eventlog.watch_data_of_groups import GroupHealth
from support.burrow.lag_events import make_event, make_partition

NOW_MS = 1_000_000_000


def polled(*partitions: PartitionLag, at_ms: int = NOW_MS, **extras: int) -> LagEvent:
    told = tuple((name, str(value)) for name, value in extras.items())
    worst = max(partitions, key=lambda one: one.current_lag or 0)
    return make_event(
        status_text="ERR", source=Source.KAFKA, observed_at_ms=at_ms, partitions=partitions, max_lag=worst, extras=told
    )


def explained(newest: LagEvent, **known: Any) -> Explanation:
    state = GroupState(GroupKey("prod-eu", "orders"), 1, 0, summarize(newest, NOW_MS), IncidentState())
    return explain(Known(NOW_MS, state, newest, newest.partitions, has_all=True, **known))


STOPPED = make_partition(status_text="STOP", current_lag=500)


def test_the_rebalances_of_a_shutdown_are_no_storm() -> None:
    earlier = polled(STOPPED, at_ms=NOW_MS - 300_000, members=3, rebalances=2)
    assert explained(polled(STOPPED, members=0, rebalances=7), earlier=earlier).cause == "no_members"


def test_the_rebalances_of_half_a_day_without_polls_are_no_storm() -> None:
    earlier = polled(STOPPED, at_ms=NOW_MS - 12 * 3_600_000, members=2, rebalances=2)
    assert explained(polled(STOPPED, members=2, rebalances=7), earlier=earlier).cause != "rebalance_storm"


def test_the_evidence_of_lost_messages_has_the_words_of_the_status() -> None:
    beyond = make_partition(
        status_text="BEYOND_END", end=OffsetSample(10_000, NOW_MS, lag=0), current_lag=None, log_end=1_331
    )
    found = explained(polled(beyond), watched=GroupHealth("orders", "Stable", 1, 1, 0, 7, None))
    assert found.cause == "messages_lost"
    assert any("past the end 1,331" in each for each in found.evidence)
    assert "base" not in found.evidence
