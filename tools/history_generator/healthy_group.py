"""Simulates a healthy consumer group and Burrow's verdicts on it, which are almost always OK.

`FakeBurrow` gives the same verdicts on such a group but takes several times as long. `HealthyGroup` does not use
Burrow's storage, and applies the rules only if the verdict can differ from OK. Times are simulated seconds.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from karrot.burrow.notification_rules import NotifiedGroup, notify
from karrot.burrow.rules import DEFAULT_INTERVALS, TrackedPartition, evaluate_group
from karrot.event import LagEvent, OffsetSample, PartitionLag, Status
from support.burrow.fake.fake_burrow import HISTORY_SECONDS, BurrowSettings, Post, incident_id, posted
from support.burrow.fake.simulated_kafka import ConsumerGroup, SimulatedCommit, SimulatedOwner

_OK: Final = Status.OK.name
_NOBODY = SimulatedOwner("", 0, "", "")


class HealthyGroup:
    """A group that is never deleted, reads one topic faster than producers write to it, and always commits.

    Such a group never stops or rewinds, and each of its windows is full. So it is worse than OK only if it was behind
    at each of its last ten commits. ``random`` is Burrow's. `FakeBurrow` explains ``start_ms`` and ``speed``.
    """

    def __init__(
        self,
        cluster: str,
        group: ConsumerGroup,
        random: Random,
        *,
        start_ms: int,
        speed: float,
        settings: BurrowSettings,
    ) -> None:
        self.name = group.name
        self._cluster = cluster
        self._group = group
        (self._topic,) = group.topics
        self._new_id = partial(incident_id, random)
        self._start_ms = start_ms
        self._speed = speed
        self._offset_refresh = settings.offset_refresh
        self._period = settings.period(speed)
        told = settings.notifier  # in seconds of the wall clock:
        self._notifier = replace(told, interval=told.interval / speed, send_interval=told.pause_ms / 1000 / speed)
        self._notified = NotifiedGroup()
        partitions = range(len(self._topic.rates))
        self._owners = [_NOBODY for _ in partitions]
        self._windows = [deque[OffsetSample](maxlen=DEFAULT_INTERVALS) for _ in partitions]
        self._behind = [0 for _ in partitions]
        self._ends = deque[list[int]](maxlen=DEFAULT_INTERVALS)
        self._reads_ends_at = -HISTORY_SECONDS
        self._steps_at = group.next_step(-HISTORY_SECONDS)
        self._evaluates_at = random.uniform(0, settings.notifier.interval)

    def due(self, until: float) -> Iterator[Post]:
        """Yield Burrow's posts since the last call, up to a time."""
        while self._evaluates_at <= until:
            verdict = self.verdict(self._evaluates_at)
            status, now_ms = Status[verdict.status_text], verdict.observed_at_ms
            sent = notify(self._notified, status, now_ms, self._notifier, self._new_id)
            if sent is not None:
                yield posted(verdict, sent)
            self._evaluates_at += self._period

    def failover(self, at: float) -> None:
        """Let another Burrow, without its state, evaluate the group at once."""
        self._evaluates_at = at
        self._notified = NotifiedGroup()

    def verdict(self, at: float, *, show_all: bool = False) -> LagEvent:
        """Return the verdict at a time, with the bad partitions or with all. Later calls need later or equal times."""
        self._run_until(at)
        now_ms = self._wall_ms(at)
        if max(self._behind) >= DEFAULT_INTERVALS:
            return evaluate_group(self._cluster, self.name, self._tracked(), now_ms, show_all=show_all)
        lags = [max(0, end - window[-1].offset) for end, window in zip(self._ends[-1], self._windows, strict=True)]
        largest = max(lags)
        return LagEvent(
            self._cluster,
            self.name,
            _OK,
            sum(lags),
            now_ms,
            complete=1.0,
            partition_count=len(lags),
            max_lag=self._partition(lags.index(largest), largest),
            partitions=tuple(map(self._partition, range(len(lags)), lags)) if show_all else (),
        )

    def _partition(self, number: int, lag: int) -> PartitionLag:
        window, owner = self._windows[number], self._owners[number]
        return PartitionLag(
            topic=self._topic.name,
            partition=number,
            owner=owner.owner,
            client_id=owner.client_id,
            status_text=_OK,
            start=window[0],
            end=window[-1],
            current_lag=lag,
            complete=1.0,
        )

    def _tracked(self) -> Iterator[TrackedPartition]:
        for number, (window, owner) in enumerate(zip(self._windows, self._owners, strict=True)):
            ends = [looked[number] for looked in self._ends]
            yield TrackedPartition(self._topic.name, number, tuple(window), ends, owner.owner, owner.client_id)

    def _run_until(self, at: float) -> None:
        while self._reads_ends_at <= at or self._steps_at <= at:
            if self._reads_ends_at <= self._steps_at:
                self._ends.append(list(map(int, self._topic.ends(self._reads_ends_at))))
                self._reads_ends_at += self._offset_refresh
            else:
                self._step(self._steps_at)
                self._steps_at = self._group.next_step(self._steps_at)

    def _step(self, at: float) -> None:
        now_ms, ends = self._wall_ms(at), self._ends[-1]
        for record in self._group.step(at):
            if isinstance(record, SimulatedCommit):
                number, offset = record.partition, record.offset
                lag = max(0, ends[number] - offset)
                self._windows[number].append(
                    OffsetSample(offset, now_ms, observed_at_ms=now_ms // 1000 * 1000, lag=lag)
                )
                self._behind[number] = self._behind[number] + 1 if lag else 0
            elif isinstance(record, SimulatedOwner):
                self._owners[record.partition] = record
            else:
                raise TypeError(f"{self.name} is deleted: it is not steady")

    def _wall_ms(self, at: float) -> int:
        return self._start_ms + int(at * 1000 / self._speed)
