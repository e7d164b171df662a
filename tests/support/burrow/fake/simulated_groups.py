"""Makes consumer groups with the names of the demo, and with behaviours: how each falls behind and recovers."""

import math
from collections.abc import Iterator
from random import Random

from karrot.demo.simulated_burrow import GROUP_NAMES
from support.burrow.fake.simulated_kafka import NO_SPIKES, Behaviour, ConsumerGroup, Phase, SimulatedTopic, Spikes

BEHAVIOURS = {
    "slowly falling behind": Behaviour((Phase(50, pace=0.6), Phase(60, pace=1.8)), starts=(8, 20)),
    "healthy": Behaviour(),
    "spiky": Behaviour((Phase(60, pace=1.6),), spikes=Spikes(every=60, lasts=12, height=4)),
    "stalled": Behaviour((Phase(60), Phase(40, pace=0)), afflicts=0.3),
    "skewed": Behaviour((Phase(60, pace=0.8), Phase(45, pace=1.8)), afflicts=0, starts=(10, 30), skew=8),
    "stopped": Behaviour((Phase(70), Phase(50, commits=False)), afflicts=0.5),
    "rewinding": Behaviour((Phase(75), Phase(30, pace=1.6, goes_back=90)), afflicts=0.4, starts=(30, 70)),
    "deleted": Behaviour((Phase(150), Phase(420, exists=False)), starts=(60, 100)),
    "just joined": Behaviour((Phase(600, pace=2.5, goes_back=45, stagger=8), Phase(60, exists=False)), starts=(5, 10)),
}
"""Behaviours by name. A group with a behaviour falls behind and recovers in rounds of one to ten minutes."""

_ORDER = (
    *("slowly falling behind", "healthy", "spiky", "stalled", "healthy", "skewed"),
    *("stopped", "healthy", "rewinding", "deleted", "healthy", "just joined"),
)

_OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITIONS = 50


def application_groups(count: int, seed: int) -> Iterator[ConsumerGroup]:
    """``count`` groups, each with its own topics. The first twelve show every behaviour."""
    for number in range(count):
        group, topic = GROUP_NAMES[number % len(GROUP_NAMES)]
        copy = f"-{number // len(GROUP_NAMES) + 1}" if number >= len(GROUP_NAMES) else ""
        behaviour = BEHAVIOURS[_ORDER[number % len(_ORDER)]]
        yield _application_group(group + copy, topic + copy, behaviour, Random(f"{seed}/{number}"))


def burrows_own_group(cluster: str, seed: int) -> ConsumerGroup:
    """Burrow's own group in a cluster, which shows Burrow's progress in ``__consumer_offsets``. It has no owners."""
    random = Random(f"{seed}/burrow-{cluster}")
    rates = [random.uniform(0.1, 1.0) for _ in range(_OFFSETS_PARTITIONS)]
    topic = _topic(_OFFSETS_TOPIC, rates, random, NO_SPIKES)
    return ConsumerGroup(f"burrow-{cluster}", [topic], Behaviour(), random, commit_every=2.0, members=0)


def _application_group(name: str, topic_name: str, behaviour: Behaviour, random: Random) -> ConsumerGroup:
    partitions = random.choice((3, 4, 6, 6, 8, 12))
    afflicted = random.sample(range(partitions), max(1, round(behaviour.afflicts * partitions)))
    usual_rate = math.exp(random.uniform(math.log(4), math.log(150)))
    rates = [usual_rate * random.uniform(0.9, 1.1) for _ in range(partitions)]
    rates[afflicted[0]] *= behaviour.skew
    topics = [_topic(topic_name, rates, random, behaviour.spikes)]
    if random.random() < 0.25:
        topics.append(_topic(f"{topic_name}.retry", [usual_rate / 20], random, NO_SPIKES))
    return ConsumerGroup(
        name,
        topics,
        behaviour,
        random,
        commit_every=random.choice((1.0, 1.0, 1.5, 2.0)),
        members=random.randint(1, min(4, partitions)),
        afflicted=frozenset((topic_name, partition) for partition in afflicted),
    )


def _topic(name: str, rates: list[float], random: Random, spikes: Spikes) -> SimulatedTopic:
    # At least a day of messages exists before the start, so that no log end is negative in the simulated history.
    starts = [int(rate * random.uniform(1, 30) * 86_400) for rate in rates]
    return SimulatedTopic(name, rates, starts, random.uniform(0, 2 * math.pi), spikes)
