"""Reads simulated commits and log ends into the fake Burrow's storage."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

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


class OffsetsConsumer:
    """Fills one `Storage` for each cluster. Not safe to use from several threads."""

    def __init__(self, world: World, settings: StorageSettings) -> None:
        self._world = world
        self._settings = settings
        self._orders = {cluster: count(1) for cluster in world}
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

    def written(self, key: GroupKey, records: Iterable[Record], now_ms: int) -> None:
        """Read the records that a group wrote."""
        storage, orders = self.storages[key.cluster], self._orders[key.cluster]
        for record in records:
            if isinstance(record, SimulatedCommit):
                topic, partition, offset = record
                order, now = next(orders), now_ms // 1000
                storage.put_commit(key.consumer, topic, partition, offset, order=order, timestamp_ms=now_ms, now=now)
            elif isinstance(record, SimulatedOwner):
                storage.put_owner(key.consumer, *record)
            else:
                storage.delete_group(key.consumer)

    def _empty(self) -> dict[str, Storage]:
        settings = self._settings
        return {
            cluster: Storage(
                intervals=settings.intervals, min_distance=settings.min_distance, expire_group=settings.expire_group
            )
            for cluster in self._world
        }
