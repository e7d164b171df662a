"""Simulates a topic, and a consumer group whose read rate follows the number of running tasks."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from karrot.burrow.rules import evaluate_group
from support.autoscaling.fleet import Fleet
from support.burrow.burrow_storage import Storage
from support.burrow.fake.fake_burrow import Post
from support.burrow.fake.simulated_kafka import Behaviour, ConsumerGroup, Record, SimulatedCommit, SimulatedTopic

PARTITIONS = 8
RATE_PER_TASK = 100.0
_COMMIT_EVERY_S = 5.0
_ALREADY_THERE = 1_000_000
_BEFORE_ALL = -1000.0


class VariableRateTopic(SimulatedTopic):
    """Partitions that are written to evenly, with one rate over all in messages per second; `feed` changes the rate."""

    _fed: list[tuple[float, float]]

    def __init__(self, name: str, rate: float) -> None:
        super().__init__(name, (1.0,) * PARTITIONS, (_ALREADY_THERE,) * PARTITIONS)
        object.__setattr__(self, "_fed", [(_BEFORE_ALL, rate)])  # a Topic is frozen

    def feed(self, at: float, rate: float) -> None:
        """Write this number of messages per second from a time on, which must be later than all earlier ones."""
        self._fed.append((at, rate))

    def ends(self, at: float) -> list[float]:
        return [start + self._produced(at) / PARTITIONS for start in self.starts]

    def _produced(self, at: float) -> float:
        turns = [turn for turn in self._fed if turn[0] < at]
        return sum((until - since) * rate for (since, rate), (until, _) in pairwise([*turns, (at, 0.0)]))


class ScaledGroup(ConsumerGroup):
    """A group that reads at the capacity of its running tasks and commits every 5 seconds while a task runs.

    It reads no message of the partitions in ``stuck``, and commits the same offset of these partitions again and again.
    If it ``is_dead``, its tasks run, but read and commit nothing.
    Before time 0, in the history that Burrow reads at its start, the group has read all messages.
    """

    def __init__(self, name: str, topic: VariableRateTopic, fleet: Fleet) -> None:
        super().__init__(name, [topic], Behaviour(), Random(1))
        self._topic = topic
        self._fleet = fleet
        self._positions = topic.ends(0)
        self._read_until = 0.0
        self.stuck: set[int] = set()
        self.is_dead = False

    def next_step(self, at: float) -> float:
        return at + _COMMIT_EVERY_S

    def step(self, at: float) -> list[Record]:
        ends = self._topic.ends(at)
        if at <= 0:
            return self._commits(ends)
        if self.is_dead:
            return []
        share = self._fleet.consumable(self._read_until, at) / PARTITIONS
        self._read_until = at
        self._positions = [
            position if number in self.stuck else min(end, position + share)
            for number, (end, position) in enumerate(zip(ends, self._positions, strict=True))
        ]
        return self._commits(self._positions) if self._fleet.running else []

    def lag(self, at: float) -> float:
        """Return the number of messages that are written but not read."""
        return sum(self._topic.ends(at)) - sum(self._positions)

    def _commits(self, positions: Sequence[float]) -> list[Record]:
        return [SimulatedCommit(self._topic.name, number, int(position)) for number, position in enumerate(positions)]


class RestartedBurrow:
    """A Burrow that reads ``__consumer_offsets`` from the start, and compares old commits with current log ends."""

    def __init__(self, cluster: str, group: str, topic: VariableRateTopic, *, start_ms: int, every_s: int) -> None:
        self._cluster, self._group, self._topic = cluster, group, topic
        self._start_ms, self._every_ms = start_ms, every_s * 1000
        self._next_ms = 0

    def due(self, now_ms: int) -> list[Post]:
        """Return a verdict on windows with three of ten slots filled."""
        if now_ms < self._next_ms:
            return []
        self._next_ms = now_ms + self._every_ms
        storage = Storage()
        for order in range(3):
            self._read(storage, now_ms - 2000 * (3 - order), order)
        event = evaluate_group(self._cluster, self._group, storage.fetch(self._group, now_ms // 1000) or (), now_ms)
        return [Post(event, is_close=False)]

    def _read(self, storage: Storage, now_ms: int, order: int) -> None:
        ends = self._topic.ends((now_ms - self._start_ms) / 1000)
        for number, end in enumerate(ends):
            storage.put_log_end(self._topic.name, number, int(end), partition_count=len(ends))
            old_ms = now_ms - 3_600_000
            storage.put_commit(
                self._group, self._topic.name, number, order, order=order, timestamp_ms=old_ms, now=now_ms // 1000
            )
