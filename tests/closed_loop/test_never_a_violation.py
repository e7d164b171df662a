"""Karrot never sends a datum that CloudWatch would refuse, for any events from Burrow.

``TESTS_STREAMS=10000`` runs 10,000 streams of events instead of 80.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karrot.burrow.payload import to_wire
from karrot.event import LagEvent
from support.autoscaling.closed_loop import LoopCloudWatch, LoopKarrot
from support.burrow.lag_events import event_strategy
from support.manual_clock import ManualClock

_STREAMS = int(os.environ.get("TESTS_STREAMS", "80"))
_WEEK_MS = 7 * 86_400_000
_NOW_MS = ManualClock().wall

_NAMES = st.sampled_from(["a", "b", "", " ", "%", "(empty)", ":x", "ü" * 600, "n" * 1100, "\x00"])


def _named(event: LagEvent, cluster: str | None, consumer: str | None) -> LagEvent:
    return event._replace(cluster=cluster or event.cluster, consumer=consumer or event.consumer)


def _events() -> st.SearchStrategy[LagEvent]:
    """Draw any events, most of them with a time that CloudWatch accepts."""
    events = st.builds(_named, event_strategy(), st.none() | _NAMES, st.none() | _NAMES)
    near = st.integers(_NOW_MS - 3 * _WEEK_MS, _NOW_MS + _WEEK_MS) | st.integers(_NOW_MS - 60_000, _NOW_MS)
    return st.builds(lambda event, at_ms: event._replace(observed_at_ms=at_ms), events, near) | events


def _settings() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "metrics": st.just("Lag,ScalableLag,MaxLag,LagSeconds,Status"),
            "layout": st.sampled_from(["legacy", "dimensions,legacy"]),
            "min_complete": st.just("0.5"),
            "resolution": st.just("1"),
            "max_groups": st.just("2"),
        },
    )


@settings(
    max_examples=_STREAMS,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.tuples(_events(), st.sampled_from([0, 500, 40_000])), min_size=1, max_size=5), _settings())
@pytest.mark.timeout(3600)
def test_the_strict_fake_never_sees_a_violation(
    aws: LoopCloudWatch, stream: list[tuple[LagEvent, int]], told: dict[str, str]
) -> None:
    clock = ManualClock()
    aws.reset(clock)
    karrot = LoopKarrot(aws, clock, told)
    for event, pause_ms in stream:
        karrot.log.append(event, to_wire(event))
        clock.advance(pause_ms)
        karrot.work()
    clock.advance(30_000)
    karrot.work()
    assert {call.status for call in aws.fake.calls} <= {200}
    assert "rejected" not in karrot.dropped()
    assert karrot.log.reporters()[0].state == "ok"
