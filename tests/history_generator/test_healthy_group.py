"""The shortcut for a healthy group gives the same results as the fake Burrow with storage and rules."""

from random import Random

import pytest

from karrot.burrow.notification_rules import NotifierSettings
from karrot.event import Kind, LagEvent, Status
from support.burrow.fake.fake_burrow import BurrowSettings, FakeBurrow, Post
from support.burrow.fake.simulated_kafka import Behaviour, ConsumerGroup, Phase, SimulatedTopic
from tools.history_generator.healthy_group import HealthyGroup

START_MS = 1_763_741_000_123
SETTINGS = BurrowSettings(NotifierSettings(threshold=Status.OK, interval=1, send_interval=0.5, send_close=True))
AT_EACH_MINUTE = 1 / 60

Said = tuple[list[Post], list[LagEvent | None]]
"""The posted events and the answers of REST."""


def group(pace: float, *, seed: int) -> ConsumerGroup:
    behaviour = Behaviour((Phase(150), Phase(150, pace=pace), Phase(300)), starts=(0, 0))
    afflicted = frozenset({("orders", 0), ("orders", 1)})
    topic = SimulatedTopic("orders", [20.0, 35.0, 900.0], [100_000, 90_000, 80_000])
    return ConsumerGroup("billing", [topic], behaviour, Random(seed), members=2, afflicted=afflicted, tempo=(1, 1))


def by_the_rules(pace: float, seed: int, speed: float) -> Said:
    """Return the posts of 400 seconds with a failover, and the REST answers every 20 seconds."""
    fake = FakeBurrow(
        {"prod": [group(pace, seed=seed)]}, Random(seed), start_ms=START_MS, speed=speed, settings=SETTINGS
    )
    posts: list[Post] = []
    answers: list[LagEvent | None] = []
    for second in range(20, 420, 20):
        if second == 240:
            fake.failover()
        now_ms = START_MS + round(second * 1000 / speed)
        posts += fake.due(now_ms)
        answers.append(fake.verdict("prod", "billing", now_ms))
    return posts, answers


def in_short(pace: float, seed: int, speed: float) -> Said:
    healthy = HealthyGroup(
        "prod", group(pace, seed=seed), Random(seed), start_ms=START_MS, speed=speed, settings=SETTINGS
    )
    posts: list[Post] = []
    answers: list[LagEvent | None] = []
    for second in range(20, 420, 20):
        if second == 240:
            healthy.failover(second - 20)
        posts += healthy.due(second)
        answers.append(healthy.verdict(second, show_all=True))
    return posts, answers


@pytest.mark.parametrize("speed", [1, AT_EACH_MINUTE], ids=["each second", "each minute"])
@pytest.mark.parametrize("seed", range(4))
def test_a_group_that_keeps_up_has_the_same_events_as_by_the_rules(seed: int, speed: float) -> None:
    said = in_short(3.0, seed, speed)
    assert said == by_the_rules(3.0, seed, speed)
    assert {post.event.kind for post in said[0]} == {Kind.OBSERVATION}


@pytest.mark.parametrize("seed", range(4))
def test_a_group_that_is_too_slow_has_the_same_events_as_by_the_rules(seed: int) -> None:
    said = in_short(0.8, seed, 1)
    assert said == by_the_rules(0.8, seed, 1)
    assert {post.event.kind for post in said[0]} == {Kind.OBSERVATION, Kind.INCIDENT, Kind.CLOSE}


def test_a_group_that_is_deleted_is_not_healthy() -> None:
    behaviour = Behaviour((Phase(60), Phase(60, exists=False), Phase(60)), starts=(0, 0))
    gone = ConsumerGroup("billing", [SimulatedTopic("orders", [20.0], [0])], behaviour, Random(3), tempo=(1, 1))
    healthy = HealthyGroup("prod", gone, Random(3), start_ms=START_MS, speed=1, settings=SETTINGS)
    with pytest.raises(TypeError, match="billing is deleted"):
        list(healthy.due(120))
