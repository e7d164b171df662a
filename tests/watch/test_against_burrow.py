"""Burrow's model and the watch give the same verdicts for one simulated history, except for known differences.

Burrow's model sees every commit at its time, with log ends ten seconds apart. The watch sees what the Admin API shows
every ten seconds. Both rings span a hundred seconds (Burrow's by ``min-distance``).
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from karrot.burrow.rules import evaluate_group
from karrot.watch.poll_loop import PollOutcome, Watcher
from support.burrow.burrow_storage import Storage
from support.burrow.fake.simulated_groups import BEHAVIOURS
from support.burrow.fake.simulated_kafka import (
    Behaviour,
    ConsumerGroup,
    Deletion,
    Phase,
    SimulatedCommit,
    SimulatedTopic,
)
from support.kafka.in_memory_kafka import SimulatedWorld
from support.manual_clock import ManualClock

POLL_S = 10
HOUR_S = 3600
WARM_S = 120
SEEDS = range(4)

Verdicts = Counter[tuple[str, str]]
"""How often Burrow gave the first status and the watch, at the same moment, the second; ``-`` is no verdict."""


class Newest:
    """A sink that keeps the last outcome."""

    status = "-"

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:
        age_ms()
        self.status = outcome.events[0].status_text if outcome.events else "-"

    def close(self) -> None: ...


def lived_by(behaviour: Behaviour, seed: int) -> ConsumerGroup:
    """Return a group of six partitions with phases six times as long as in the demo, so that rings fill."""
    slow = Behaviour(
        tuple(phase._replace(seconds=6 * phase.seconds) for phase in behaviour.phases),
        behaviour.afflicts,
        spikes=behaviour.spikes,
    )
    random = Random(seed)
    topic = SimulatedTopic("t", [random.uniform(4, 150)] * 6, [10_000_000] * 6, spikes=behaviour.spikes)
    afflicted = frozenset(("t", number) for number in random.sample(range(6), max(1, round(behaviour.afflicts * 6))))
    return ConsumerGroup("g", [topic], slow, random, commit_every=random.choice((1.0, 2.0, 5.0)), afflicted=afflicted)


def compared(group: ConsumerGroup) -> Verdicts:
    world, clock, newest, verdicts = SimulatedWorld([group]), ManualClock(), Newest(), Verdicts()
    watcher = Watcher("c", world.kafka, clock, newest.send, None)
    storage, start_ms, order = Storage(min_distance=POLL_S), clock.wall, 0
    for at in range(0, HOUR_S, POLL_S):
        for moment, _, record in world.run_until(at):
            order += 1
            at_ms = start_ms + int(moment * 1000)
            if isinstance(record, SimulatedCommit):
                storage.put_commit("g", *record, order=order, timestamp_ms=at_ms, now=at_ms // 1000)
            elif isinstance(record, Deletion):
                storage.delete_group("g")
        for (topic, number), end in world.kafka.ends.items():
            storage.put_log_end(topic, number, end, partition_count=6)
        watcher.step()
        tracked = storage.fetch("g", clock.wall // 1000)
        burrow = "-" if tracked is None else evaluate_group("c", "g", tracked, clock.wall).status_text
        if at >= WARM_S:
            verdicts[burrow, newest.status] += 1
        clock.advance(POLL_S * 1000)
    return verdicts


def over_all_seeds(behaviour: Behaviour) -> Verdicts:
    return sum((compared(lived_by(behaviour, seed)) for seed in SEEDS), Verdicts())


@pytest.mark.parametrize("name", ["healthy", "spiky"])
def test_a_group_that_keeps_up_is_always_ok(name: str) -> None:
    assert set(over_all_seeds(BEHAVIOURS[name])) == {("OK", "OK")}


@pytest.mark.parametrize("name", ["stalled", "stopped", "rewinding", "skewed"])
def test_burrows_errors_are_errors_of_the_watch_except_for_a_poll_or_two_at_the_ends(name: str) -> None:
    verdicts = over_all_seeds(BEHAVIOURS[name])
    same = sum(times for (burrow, watch), times in verdicts.items() if burrow == watch)
    assert same / verdicts.total() > 0.96
    if name != "skewed":
        assert verdicts["ERR", "ERR"] > 5 * (verdicts["ERR", "OK"] + verdicts["OK", "ERR"])


def test_a_slowly_growing_lag_is_reported_at_least_as_often_as_by_burrow() -> None:
    """Burrow's log ends are up to ten seconds old at a commit, so the lag in its ring jumps; here the lag grows."""
    verdicts = over_all_seeds(BEHAVIOURS["slowly falling behind"])
    assert verdicts["WARN", "OK"] <= verdicts["WARN", "WARN"] / 10
    assert verdicts["WARN", "WARN"] + verdicts["OK", "WARN"] > 100
    assert not {"ERR"} & {said for pair in verdicts for said in pair}


def test_a_group_that_commits_less_often_than_a_ring_lasts_is_ok_for_the_watch_too_once_its_gap_is_known() -> None:
    """The watch sees the group's offsets stand still; Burrow's ring has ten commits over any time."""
    patient = ConsumerGroup(
        "g", [SimulatedTopic("t", [20.0], [10_000_000])], Behaviour((Phase(HOUR_S),)), Random(1), commit_every=300.0
    )
    verdicts = compared(patient)
    assert verdicts["OK", "OK"] > 300
    assert verdicts["OK", "ERR"] == 0
    first_gap = 300 // POLL_S
    assert sum(times for (_, watch), times in verdicts.items() if watch == "ERR") < first_gap / 2


def test_a_deleted_group_is_reported_a_minute_after_burrow_silently_forgets_it() -> None:
    verdicts = over_all_seeds(BEHAVIOURS["deleted"])
    assert verdicts["-", "NOTFOUND"] >= len(SEEDS)
    assert verdicts["-", "-"] > 100
