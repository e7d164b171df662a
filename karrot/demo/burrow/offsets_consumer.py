"""Reads simulated commits and log ends into the fake Burrow's storage, live or from the beginning of the topic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from karrot.burrow.rules import DEFAULT_INTERVALS
from karrot.burrow.storage import DEFAULT_EXPIRE_GROUP, Storage
from karrot.demo.simulated_kafka import ConsumerGroup, Record, SimulatedCommit, SimulatedOwner
from karrot.event import GroupKey

World = Mapping[str, Sequence[ConsumerGroup]]
"""The groups of each cluster."""


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """A ``[storage.X]`` section; times in seconds."""

    intervals: int = DEFAULT_INTERVALS
    min_distance: float = 0
    expire_group: int = DEFAULT_EXPIRE_GROUP


class _Kept(NamedTuple):
    """A commit as Kafka keeps it."""

    commit: SimulatedCommit
    order: int
    at_ms: int


@dataclass(slots=True)
class _Compacted:
    """The records of a group after compaction: the last commit and the last owner of each partition."""

    commits: dict[tuple[str, int], _Kept] = field(default_factory=dict)
    owners: dict[tuple[str, int], SimulatedOwner] = field(default_factory=dict)


class OffsetsConsumer:
    """Fills one `Storage` for each cluster. Not safe to use from several threads."""

    def __init__(self, world: World, settings: StorageSettings) -> None:
        self._world = world
        self._settings = settings
        self._orders = {cluster: count(1) for cluster in world}
        self._compacted: dict[GroupKey, _Compacted] = {}
        self.storages = self._empty()

    def known_groups(self) -> list[GroupKey]:
        """Every group of every storage."""
        return [GroupKey(cluster, group) for cluster, storage in self.storages.items() for group in storage.groups()]

    def read_log_ends(self, at: float) -> None:
        """Read the log end of every partition that a group reads."""
        for cluster, groups in self._world.items():
            storage = self.storages[cluster]
            for topic in {topic.name: topic for group in groups for topic in group.topics}.values():
                ends = topic.ends(at)
                for partition, end in enumerate(ends):
                    storage.put_log_end(topic.name, partition, int(end), partition_count=len(ends))

    def written(self, key: GroupKey, records: Iterable[Record], now_ms: int, *, is_read: bool) -> None:
        """Take the records that a group wrote. With ``is_read`` they go to the storage at once; else only to Kafka."""
        storage, orders = self.storages[key.cluster], self._orders[key.cluster]
        for record in records:
            if isinstance(record, SimulatedCommit):
                kept = _Kept(record, next(orders), now_ms)
                self._of(key).commits[record.topic, record.partition] = kept
                if is_read:
                    _put_commit(storage, key.consumer, kept, now_ms)
            elif isinstance(record, SimulatedOwner):
                self._of(key).owners[record.topic, record.partition] = record
                if is_read:
                    storage.put_owner(key.consumer, *record)
            else:
                self._compacted.pop(key, None)
                if is_read:
                    storage.delete_group(key.consumer)

    def forget(self, *, from_latest: bool) -> None:
        """Empty the storage, as after a restart. ``from_latest`` also drops the backlog of old records."""
        self.storages = self._empty()
        if from_latest:
            self._compacted = {}

    def read_backlog(self, now_ms: int) -> None:
        """Read the backlog of old records, with their original times."""
        for key, compacted in self._compacted.items():
            storage = self.storages[key.cluster]
            for owner in compacted.owners.values():
                storage.put_owner(key.consumer, *owner)
            for kept in compacted.commits.values():
                _put_commit(storage, key.consumer, kept, now_ms)

    def _empty(self) -> dict[str, Storage]:
        settings = self._settings
        return {
            cluster: Storage(
                intervals=settings.intervals, min_distance=settings.min_distance, expire_group=settings.expire_group
            )
            for cluster in self._world
        }

    def _of(self, key: GroupKey) -> _Compacted:
        compacted = self._compacted.get(key)
        if compacted is None:
            compacted = self._compacted[key] = _Compacted()
        return compacted


def _put_commit(storage: Storage, group: str, kept: _Kept, now_ms: int) -> None:
    topic, partition, offset = kept.commit
    storage.put_commit(group, topic, partition, offset, order=kept.order, timestamp_ms=kept.at_ms, now=now_ms // 1000)
