"""Reads simulated commits and log ends into the fake Burrow's storage."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from karrot.event import GroupKey
from support.burrow.burrow_storage import Storage
from support.burrow.fake.simulated_kafka import ConsumerGroup, Record, SimulatedCommit, SimulatedOwner

World = Mapping[str, Sequence[ConsumerGroup]]
"""The groups of each cluster."""


class OffsetsConsumer:
    """Fills one `Storage` for each cluster. Not safe to use from several threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._orders = {cluster: count(1) for cluster in world}
        self.storages = {cluster: Storage() for cluster in world}

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
