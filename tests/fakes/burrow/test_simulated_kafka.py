from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.burrow.fake.simulated_kafka import (
    Behaviour,
    ConsumerGroup,
    Deletion,
    Phase,
    Record,
    SimulatedCommit,
    SimulatedOwner,
    SimulatedTopic,
    Spikes,
)

ORDERS = SimulatedTopic("orders", [10.0, 20.0], [1_000, 5_000])
seeds = st.integers(0, 1000)


def group(
    *phases: Phase, topic: SimulatedTopic = ORDERS, seed: int = 1, members: int = 1, afflicted: int = 2
) -> ConsumerGroup:
    return ConsumerGroup(
        "billing",
        [topic],
        Behaviour(phases, starts=(0, 0)),
        Random(seed),
        members=members,
        afflicted=frozenset(("orders", partition) for partition in range(afflicted)),
    )


def life(of: ConsumerGroup, seconds: int) -> list[list[Record]]:
    return [of.step(float(at)) for at in range(seconds)]


def offsets(steps: list[list[Record]], partition: int = 0) -> list[int]:
    return [
        record.offset for step in steps for record in step if type(record) is SimulatedCommit and record[1] == partition
    ]


@given(st.lists(st.floats(-100, 1000), min_size=2), st.floats(1, 10), st.floats(0, 6))
def test_a_log_end_never_goes_back(moments: list[float], height: float, phase: float) -> None:
    topic = SimulatedTopic("t", [10.0], [5_000], phase, Spikes(every=60, lasts=12, height=height))
    ends = [topic.ends(at)[0] for at in sorted(moments)]
    assert all(earlier <= later for earlier, later in pairwise(ends))


def test_a_spike_is_added_to_the_usual_rate() -> None:
    calm, spiky = (
        SimulatedTopic("t", [10.0], [0]),
        SimulatedTopic("t", [10.0], [0], spikes=Spikes(every=60, lasts=12, height=4)),
    )
    assert spiky.ends(60)[0] - calm.ends(60)[0] == pytest.approx(10 * 12 * 4)
    assert spiky.ends(119)[0] - spiky.ends(72)[0] == pytest.approx(calm.ends(119)[0] - calm.ends(72)[0])
    assert spiky.mean_rate(0) == pytest.approx(10 * (1 + 4 * 12 / 60))


@given(seeds)
def test_a_steady_group_stays_at_the_log_ends(seed: int) -> None:
    steps = life(group(Phase(60), seed=seed), 100)
    for at, (first, second) in enumerate(zip(offsets(steps), offsets(steps, 1), strict=True)):
        assert 0 <= ORDERS.ends(at)[0] - first <= 0.3 * 10 + 1
        assert 0 <= ORDERS.ends(at)[1] - second <= 0.3 * 20 + 1


@given(seeds)
def test_commits_do_not_go_back_without_a_rewind_and_never_beyond_the_log_end(seed: int) -> None:
    committed = offsets(life(group(Phase(20), Phase(20, pace=0.3), Phase(5, commits=False), seed=seed), 200))
    assert all(earlier <= later for earlier, later in pairwise(committed))
    assert committed[-1] <= ORDERS.ends(199)[0]


def test_a_slow_group_falls_behind_and_catches_up() -> None:
    committed = offsets(life(group(Phase(50, pace=0.5), Phase(50, pace=2)), 200))
    lag = [ORDERS.ends(at)[0] - offset for at, offset in enumerate(committed)]
    assert max(lag[:60]) > 10 * 50 * 0.4
    assert min(lag[60:]) < 10


def test_a_group_that_reads_nothing_commits_the_same_offset() -> None:
    committed = offsets(life(group(Phase(5), Phase(1000, pace=0)), 30))
    assert len(committed) == 30
    assert len(set(committed[-10:])) == 1


def test_a_partition_without_commits_is_silent_and_the_other_partitions_are_not() -> None:
    steps = life(group(Phase(1000, commits=False), afflicted=1), 10)
    assert offsets(steps, 0) == []
    assert len(offsets(steps, 1)) == 10


def test_a_rewind_goes_back_by_seconds_of_messages() -> None:
    committed = offsets(life(group(Phase(50), Phase(50, pace=1, goes_back=40)), 60))
    drops = [earlier - later for earlier, later in pairwise(committed) if later < earlier]
    assert len(drops) == 1
    assert drops[0] == pytest.approx(40 * 10, rel=0.1)


def test_a_deleted_group_is_reported_once_and_joins_again() -> None:
    steps = life(group(Phase(10), Phase(10, exists=False)), 25)
    quiet = [at for at, step in enumerate(steps) if not step]
    deleted = [at for at, step in enumerate(steps) if Deletion() in step]
    joined = [at for at, step in enumerate(steps) if any(isinstance(record, SimulatedOwner) for record in step)]
    assert len(deleted) == 1
    assert steps[deleted[0]] == [Deletion()]
    assert quiet == list(range(deleted[0] + 1, joined[1]))
    assert joined[0] == 0


def test_members_get_the_partitions_in_ranges() -> None:
    topic = SimulatedTopic("orders", [1.0] * 5, [10] * 5)
    owners = [
        record for record in group(Phase(60), topic=topic, members=2).step(0.0) if isinstance(record, SimulatedOwner)
    ]
    assert [(owner.partition, owner.client_id) for owner in owners] == [
        (0, "consumer-billing-1"),
        (1, "consumer-billing-1"),
        (2, "consumer-billing-1"),
        (3, "consumer-billing-2"),
        (4, "consumer-billing-2"),
    ]
    assert len({owner.owner for owner in owners}) == 2
    assert all(owner.owner.startswith("/10.") for owner in owners)


def test_partitions_of_a_new_group_commit_one_after_the_other() -> None:
    steps = life(group(Phase(1000, stagger=5)), 10)
    assert [len(offsets([step], 0)) for step in steps] == [1] * 10
    assert [len(offsets([step], 1)) for step in steps] == [0] * 5 + [1] * 5


@given(st.floats(-1000, 1000), st.floats(0, 100))
def test_phases_follow_each_other(at: float, later: float) -> None:
    phases = (Phase(10), Phase(20, pace=1), Phase(5, pace=2))
    behaviour = Behaviour(phases)
    number, phase = behaviour.phase(at)
    assert phase is phases[number % 3]
    assert behaviour.phase(at + later)[0] >= number
