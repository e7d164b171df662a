from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest

from karrot.burrow.payload import to_wire
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.pipeline.publish_to_cloudwatch import Publisher
from karrot.reporters.cloudwatch.boto_client import open_client
from karrot.settings.options import CloudWatch as Options
from support.burrow.lag_events import make_event
from support.manual_clock import ManualClock
from support.reporters.cloudwatch_reporter_rig import aws_environment, point_aws_at
from support.reporters.injected_faults import UNAVAILABLE
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch


@dataclass
class Rig:
    """A publisher with notes that survive a restart; its waits are recorded and take no time."""

    fake: ScriptedCloudWatch
    clock: ManualClock
    options: Options = field(default_factory=Options)
    notes: dict[str, bytes] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start another process with the same notes."""
        client = partial(open_client, self.options, aws_environment(self.fake.url))
        notes = self.notes.get, self.notes.__setitem__
        self.publisher = Publisher(self.options, *notes, self.clock, client, self._pause, Random(1))

    def event(self, seq: int, lag: int, *, age_ms: int = 0, log_id: str = "a", **overrides: Any) -> StoredEvent:
        """Return a verdict that was observed and received that long ago."""
        at_ms = self.clock.wall - age_ms
        event = make_event(**{"observed_at_ms": at_ms, "total_lag": lag, **overrides})
        return StoredEvent(log_id, seq, at_ms, summarize(event, at_ms), to_wire(event), event)

    def lags(self, consumer: str = "orders-svc") -> list[float]:
        points = self.fake.points("Karrot", "Lag", {"Cluster": "prod-eu", "ConsumerGroup": consumer})
        return [point.value for point in points]

    def _pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.advance(round(1000 * seconds))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    clock = ManualClock()
    with ScriptedCloudWatch(clock_ms=clock.wall_ms) as fake:
        point_aws_at(fake, monkeypatch)
        yield Rig(fake, clock)


def test_a_repeated_batch_sends_no_value_again_and_no_older_value(rig: Rig) -> None:
    first, older = [rig.event(2, 7)], rig.event(1, 5, age_ms=20_000)
    assert not rig.publisher.publish(first)
    assert not rig.publisher.publish(first)
    assert not rig.publisher.publish([older])
    rig.clock.advance(60_000)
    rig.publisher.publish([rig.event(3, 9)])
    assert rig.lags() == [7, 9]
    assert len(rig.fake.calls) == 2


def test_verdicts_that_cloudwatch_did_not_take_wait_for_the_next_batch_and_hold_up_no_other_receiver(rig: Rig) -> None:
    rig.fake.script(*[UNAVAILABLE] * 2, None)  # the client itself tries twice
    assert rig.publisher.publish([rig.event(1, 7)]).startswith("CloudWatch: unavailable: ")
    assert (rig.lags(), rig.waited) == ([], [])
    rig.clock.advance(60_000)
    assert not rig.publisher.publish([rig.event(2, 9, consumer="other-svc")])
    assert (rig.lags(), rig.lags("other-svc")) == ([7], [9])


def test_verdicts_of_several_logs_count_as_those_of_one(rig: Rig) -> None:
    verdicts = [
        rig.event(900, 5, age_ms=9_000, log_id="a"),
        rig.event(3, 7, log_id="b"),
        rig.event(1, 1, log_id="c", consumer="x"),
        rig.event(901, 6, age_ms=3_000, log_id="a"),
    ]
    assert not rig.publisher.publish(verdicts)
    assert (rig.lags(), rig.lags("x")) == ([7], [1])


def test_a_clock_that_was_ahead_does_not_block_later_values(rig: Rig) -> None:
    rig.publisher.publish([rig.event(1, 5, age_ms=-3_600_000)])
    rig.clock.advance(60_000)
    rig.publisher.publish([rig.event(2, 7)])
    assert rig.lags() == [5, 7]


def test_the_first_groups_are_inside_the_cap_and_stay_there(rig: Rig) -> None:
    rig.options = Options(max_groups=2)
    rig.restart()
    rig.publisher.publish([rig.event(seq, seq, consumer=f"g{seq}") for seq in (1, 2, 3)])
    rig.clock.advance(60_000)
    rig.restart()
    rig.publisher.publish([rig.event(seq, seq, consumer=f"g{seq}") for seq in (6, 5, 4, 3, 2)])
    assert [rig.lags(f"g{seq}") for seq in range(1, 7)] == [[1], [2, 2], [], [], [], []]
