"""Simulates topics and consumer groups: log ends, commits, partition owners and deletions, as Kafka has them.

Times are simulated seconds; 0 is the start and what is before is history. Rates are messages a simulated second.
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
    """A member was assigned a partition."""

    topic: str
    partition: int
    owner: str
    client_id: str


class Deletion(NamedTuple):
    """The group was deleted."""


Record = SimulatedCommit | SimulatedOwner | Deletion
"""What a group writes to ``__consumer_offsets``."""


class Spikes(NamedTuple):
    """Every so many seconds, for so many seconds, ``height`` times the usual rate comes on top of it."""

    every: float = 60.0
    lasts: float = 0.0
    height: float = 0.0

    def seconds_until(self, at: float) -> float:
        """How much spike there was between 0 and ``at``, in seconds at the usual rate."""
        whole, rest = divmod(at, self.every)
        return self.height * (whole * self.lasts + min(rest, self.lasts))


NO_SPIKES = Spikes()


@dataclass(frozen=True, slots=True)
class SimulatedTopic:
    """Partitions that are written to in slow waves, and perhaps in spikes.

    ``rates`` are the usual ones by partition, ``starts`` the log end offsets around time 0, ``phase`` (radians) where
    in its wave the topic is then.
    """

    name: str
    rates: Sequence[float]
    starts: Sequence[int]
    phase: float = 0.0
    spikes: Spikes = NO_SPIKES

    def ends(self, at: float) -> list[float]:
        """The log end of each partition. Never goes back; a message may be half written."""
        turn = 2 * math.pi / _WAVE_SECONDS
        usual_seconds = at + _WAVE_HEIGHT / turn * math.sin(at * turn + self.phase) + self.spikes.seconds_until(at)
        return [start + rate * usual_seconds for start, rate in zip(self.starts, self.rates, strict=True)]

    def mean_rate(self, partition: int) -> float:
        """Messages a second over a long time."""
        return self.rates[partition] * (1 + self.spikes.seconds_until(self.spikes.every) / self.spikes.every)


class Phase(NamedTuple):
    """A stretch of a group's life.

    ``pace`` is how fast it can read, in mean rates of its topics. On entering it goes back by ``goes_back`` seconds
    of messages. Partitions commit for the first time ``stagger`` seconds after each other.
    """

    seconds: float
    pace: float = 3.0
    commits: bool = True
    exists: bool = True
    goes_back: float = 0.0
    stagger: float = 0.0


STEADY = Phase(60)


@dataclass(frozen=True)
class Behaviour:
    """What happens to a group, over and over.

    ``afflicts`` is the share of its partitions (at least one) that the phases are about; the others are read well.
    ``starts`` is the range of the seconds into the first round at time 0; anywhere by default. ``skew`` is how many
    times more than others the first afflicted partition is written to.
    """

    phases: tuple[Phase, ...] = (STEADY,)
    afflicts: float = 1.0
    starts: tuple[float, float] | None = None
    skew: float = 1.0
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
    """One group that reads its topics as its behaviour says and commits all partitions at once, if it commits.

    ``tempo`` is the range of how fast it goes through its phases: no two are in step, unless it is ``(1, 1)``.
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
        self._entered_at = 0.0
        self._stepped_at = 0.0

    def next_step(self, at: float) -> float:
        """When the group commits next, after having done so at ``at``."""
        return at + self._commit_every * self._random.uniform(0.9, 1.1)

    def step(self, at: float) -> list[Record]:
        """Read up to a time later than the last step's, and say what the group then writes."""
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
        self._entered_at = at

    def _join(self, at: float) -> Iterator[SimulatedOwner]:
        """Start at the log ends and share the partitions out in ranges, as Kafka's default assignor does."""
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
        since_entered, since_stepped = at - self._entered_at, at - self._stepped_at
        for number, (assigned, end) in enumerate(zip(self._assigned, readable, strict=True)):
            applied = phase if assigned.is_afflicted else STEADY
            if applied.commits and since_entered >= number * phase.stagger:
                reached = assigned.position + applied.pace * luck * since_stepped * assigned.mean_rate
                assigned.position = max(assigned.position, min(end, reached))
                yield SimulatedCommit(assigned.topic, assigned.partition, int(assigned.position))

    def _ends(self, at: float) -> list[float]:
        """In the order of what is assigned."""
        return [end for topic in self.topics for end in topic.ends(at)]
