"""A watcher of an in-memory cluster. A test writes to its topics, moves its groups, and polls."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from karrot.event import LagEvent, TopicPartition
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.watch.poll_loop import PollOutcome, Watcher
from karrot.watch.saved_state import file_keeper
from support.kafka.in_memory_kafka import InMemoryKafka, make_member
from support.manual_clock import ManualClock

OLD, NEW, SIDE = TopicPartition("old", 0), TopicPartition("new", 0), TopicPartition("new", 1)

WINDOW = 10
"""The polls of a window."""

HOUR = 360
"""The polls of an hour."""


class WatchRig:
    """A cluster with two topics, a watcher of it, and ten seconds between polls."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.kafka = InMemoryKafka(ends={OLD: 1000, NEW: 1000, SIDE: 1000})
        self.clock = ManualClock()
        self.keeper = file_keeper(directory / "state")
        self.outcomes: list[PollOutcome] = []
        self.start(**settings)

    def start(self, **settings: Any) -> None:
        """Start a watcher with the saved state of the one before, if it was closed."""
        self.watcher = Watcher("prod", self.kafka, self.clock, self.send, self.keeper, **settings)

    def restart(self, *, down_s: int = 10, **settings: Any) -> None:
        """Stop the watcher, and start another one after some time."""
        self.watcher.close()
        self.clock.advance(down_s * 1000)
        self.start(**settings)

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:
        assert age_ms() == 0
        self.outcomes.append(outcome)

    def read(self, group: str, *places: TopicPartition) -> None:
        """Make these places the ones that the only member of a group owns. Without places, the group is Empty."""
        self.kafka.put(group, self.kafka.offsets.get(group, {}), *([make_member(*places)] if places else []))

    def poll(self, times: int = 1, *, writes: int = 5, reads: Mapping[str, int] | None = None) -> list[LagEvent]:
        """Poll this many times. Before each poll, every topic gets messages, and groups read what they own."""
        before = len(self.outcomes)
        for _ in range(times):
            self.clock.advance(10_000)
            self.kafka.ends = {place: end + writes for place, end in self.kafka.ends.items()}
            for group, most in (dict.fromkeys(self.kafka.offsets, 10**9) if reads is None else reads).items():
                for place in self.kafka.descriptions[group].assigned:
                    offsets = self.kafka.offsets[group]
                    offsets[place] = min(self.kafka.ends[place], offsets.get(place, 1000) + most)
            self.watcher.step()
        return [event for outcome in self.outcomes[before:] for event in outcome.events]

    def statuses(self, times: int, group: str = "g", **polls: Any) -> list[str]:
        """The statuses of a group in the next polls, without those that have no verdict."""
        return [event.shown_status for event in self.poll(times, **polls) if event.consumer == group]

    @property
    def health(self) -> Mapping[str, GroupHealth]:
        """The groups of the newest poll."""
        return {each.consumer: each for each in self.outcomes[-1].groups}
