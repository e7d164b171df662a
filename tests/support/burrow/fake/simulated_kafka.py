"""Simulates Kafka topics and consumer groups: log ends, commits, partition owners and deletions.

Times are simulated seconds. 0 is the start; negative times are history. Rates are messages per simulated second.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import NamedTuple

_WAVE_SECONDS = 90.0
_WAVE_HEIGHT = 0.3
_SLOWEST_POLL = 0.2


class SimulatedCommit(NamedTuple):
    """A committed offset."""

    topic: str
    partition: int
    offset: int


class SimulatedOwner(NamedTuple):
    """A partition was assigned to a member."""

    topic: str
    partition: int
    owner: str
    client_id: str


class Deletion(NamedTuple):
    """The group was deleted."""


Record = SimulatedCommit | SimulatedOwner | Deletion
"""A record that a group writes to ``__consumer_offsets``."""


class Spikes(NamedTuple):
    """Every ``every`` seconds the rate rises by ``height`` times the usual rate, for ``lasts`` seconds."""

    every: float = 60.0
    lasts: float = 0.0
    height: float = 0.0

    def seconds_until(self, at: float) -> float:
        """The extra messages from 0 to ``at``, as the number of seconds in which the usual rate gives as many."""
        whole, rest = divmod(at, self.every)
        return self.height * (whole * self.lasts + min(rest, self.lasts))


NO_SPIKES = Spikes()


@dataclass(frozen=True, slots=True)
class SimulatedTopic:
    """A topic whose produce rate changes in slow waves and perhaps in spikes.

    ``rates`` are the usual rates by partition, ``starts`` are the log end offsets near time 0, and ``phase`` (radians)
    is the topic's position in its wave at that time.
    """

    name: str
    rates: Sequence[float]
    starts: Sequence[int]
    phase: float = 0.0
    spikes: Spikes = NO_SPIKES

    def ends(self, at: float) -> list[float]:
        """The log end of each partition. It never decreases, and can be a fraction."""
        turn = 2 * math.pi / _WAVE_SECONDS
        usual_seconds = at + _WAVE_HEIGHT / turn * math.sin(at * turn + self.phase) + self.spikes.seconds_until(at)
        return [start + rate * usual_seconds for start, rate in zip(self.starts, self.rates, strict=True)]

    def mean_rate(self, partition: int) -> float:
        """The average rate in messages per second, spikes included."""
        return self.rates[partition] * (1 + self.spikes.seconds_until(self.spikes.every) / self.spikes.every)


class Phase(NamedTuple):
    """One phase of a group's behaviour.

    ``pace`` is how fast the group can read, as a multiple of the mean rates of its topics. At the start of the phase
    the group goes back by ``goes_back`` seconds of messages.
    """

    seconds: float
    pace: float = 3.0
    commits: bool = True
    exists: bool = True
    goes_back: float = 0.0


STEADY = Phase(60)


@dataclass(frozen=True)
class Behaviour:
    """The phases that a group repeats in rounds.

    ``afflicts`` is the share of partitions that the phases affect (at least one partition). The group reads all others
    normally. ``starts`` is the range of the group's position in its first round at time 0, in seconds. By default, any
    position is possible.
    """

    phases: tuple[Phase, ...] = (STEADY,)
    afflicts: float = 1.0
    starts: tuple[float, float] | None = None
    spikes: Spikes = NO_SPIKES

    @cached_property
    def seconds(self) -> float:
        """The length of one round."""
        return sum(phase.seconds for phase in self.phases)

    def phase(self, at: float) -> tuple[int, Phase]:
        """The phase at a time, and its number since time 0."""
        rounds, rest = divmod(at, self.seconds)
        number = int(rounds) * len(self.phases)
        for phase in self.phases[:-1]:
            if rest < phase.seconds:
                return number, phase
            rest -= phase.seconds
            number += 1
        return number, self.phases[-1]


@dataclass(slots=True)
class _Assigned:
    topic: str
    partition: int
    is_afflicted: bool
    mean_rate: float
    position: float = 0.0


class ConsumerGroup:
    """One group that reads its topics by its behaviour. When it commits, it commits all partitions together.

    A group goes through its phases at a random speed within ``tempo``. Different speeds prevent that all groups change
    at the same times.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[SimulatedTopic],
        behaviour: Behaviour,
        random: Random,
        *,
        commit_every: float = 1.0,
        members: int = 1,
        afflicted: frozenset[tuple[str, int]] = frozenset(),
        tempo: tuple[float, float] = (0.8, 1.25),
    ) -> None:
        self.name = name
        self.topics = tuple(topics)
        self._behaviour = behaviour
        self._random = random
        self._commit_every = commit_every
        self._hosts = [
            f"/10.{random.randint(0, 63)}.{random.randint(0, 255)}.{random.randint(1, 254)}" for _ in range(members)
        ]
        self._assigned = [
            _Assigned(topic.name, partition, (topic.name, partition) in afflicted, topic.mean_rate(partition))
            for topic in topics
            for partition in range(len(topic.rates))
        ]
        self._shift = random.uniform(*(behaviour.starts or (0.0, behaviour.seconds)))
        self._tempo = random.uniform(*tempo)
        self._phase_number: int | None = None
        self._exists = False
        self._stepped_at = 0.0

    def next_step(self, at: float) -> float:
        """The time of the next commit after a commit at ``at``."""
        return at + self._commit_every * self._random.uniform(0.9, 1.1)

    def step(self, at: float) -> list[Record]:
        """Read until ``at``, which is later than the last step. Returns the records that the group writes at ``at``."""
        number, phase = self._behaviour.phase(at * self._tempo + self._shift)
        records: list[Record] = []
        if number != self._phase_number:
            records.extend(self._enter(phase, at))
            self._phase_number = number
        if phase.exists:
            records.extend(self._read(phase, at))
        self._stepped_at = at
        return records

    def _enter(self, phase: Phase, at: float) -> Iterator[Record]:
        if self._exists and not phase.exists:
            yield Deletion()
        if phase.exists and not self._exists:
            yield from self._join(at)
        for assigned in self._assigned:
            if assigned.is_afflicted:
                assigned.position = max(0.0, assigned.position - phase.goes_back * assigned.mean_rate)
        self._exists = phase.exists

    def _join(self, at: float) -> Iterator[SimulatedOwner]:
        """Start at the log ends, and assign the partitions to members in ranges, as Kafka's default assignor does."""
        ends = self._ends(at)
        self._stepped_at = at
        for number, (assigned, end) in enumerate(zip(self._assigned, ends, strict=True)):
            assigned.position = end
            if self._hosts:
                member = number * len(self._hosts) // len(self._assigned)
                client_id = f"consumer-{self.name}-{member + 1}"
                yield SimulatedOwner(assigned.topic, assigned.partition, self._hosts[member], client_id)

    def _read(self, phase: Phase, at: float) -> Iterator[SimulatedCommit]:
        readable = self._ends(at - self._random.uniform(0, _SLOWEST_POLL))
        luck = self._random.uniform(0.9, 1.1)
        since_stepped = at - self._stepped_at
        for assigned, end in zip(self._assigned, readable, strict=True):
            applied = phase if assigned.is_afflicted else STEADY
            if applied.commits:
                reached = assigned.position + applied.pace * luck * since_stepped * assigned.mean_rate
                assigned.position = max(assigned.position, min(end, reached))
                yield SimulatedCommit(assigned.topic, assigned.partition, int(assigned.position))

    def _ends(self, at: float) -> list[float]:
        """The log ends of all partitions, in the order of ``_assigned``."""
        return [end for topic in self.topics for end in topic.ends(at)]
