"""Implements Burrow's in-memory storage of one cluster (v1.9.5) as a reference model without I/O.

The rules are those of ``core/internal/storage/inmemory.go``. You put in log end offsets, commits and owners, and fetch
the partitions of a group. Timestamps are epoch milliseconds. ``now`` is in epoch seconds. Burrow filters groups by
name. This model does not, so the caller must do that.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from karrot.burrow.rules import DEFAULT_EXPIRE_GROUP, DEFAULT_INTERVALS, TrackedPartition, Window


@dataclass(slots=True)
class _Partition:
    window: Window
    owner: str = ""
    client_id: str = ""


@dataclass(slots=True)
class _Group:
    topics: dict[str, list[_Partition | None]] = field(default_factory=dict)  # None: no commit or owner seen yet
    last_commit_ms: int = 0


class Storage:
    """The windows and broker histories of one cluster. Only one thread may use them at a time."""

    def __init__(
        self, *, intervals: int = DEFAULT_INTERVALS, min_distance: float = 0, expire_group: int = DEFAULT_EXPIRE_GROUP
    ) -> None:
        self._intervals = intervals
        self._min_distance = min_distance
        self._expire_group = expire_group
        self._broker: dict[str, list[deque[int]]] = {}
        self._groups: dict[str, _Group] = {}

    def groups(self) -> tuple[str, ...]:
        """Every known group, with or without partitions."""
        return tuple(self._groups)

    def topics(self) -> tuple[str, ...]:
        """Every topic with a log end."""
        return tuple(self._broker)

    def log_ends(self, topic: str) -> tuple[int, ...] | None:
        """The newest log end offsets of a topic's partitions. ``None`` for an unknown topic.

        Partitions without a log end are left out. Burrow's REST API also leaves them out, and does not name them.
        """
        histories = self._broker.get(topic)
        return None if histories is None else tuple(history[-1] for history in histories if history)

    def put_log_end(self, topic: str, partition: int, offset: int, *, partition_count: int) -> None:
        """Add a log end offset. The newest ``intervals`` log ends of each partition are kept."""
        histories = self._broker.setdefault(topic, [])
        if len(histories) < partition_count:
            histories.extend(deque[int](maxlen=self._intervals) for _ in range(len(histories), partition_count))
        histories[partition].append(offset)

    def put_commit(
        self, group: str, topic: str, partition: int, offset: int, *, order: int, timestamp_ms: int, now: int
    ) -> bool:
        """Give a commit to its window. Ignore the commit if it is too old, or if its partition has no log end yet.

        Return whether the window got the commit. The window can still drop the commit (see `Window.add`).
        """
        ends = self._ends(topic, partition)
        if not ends or timestamp_ms < self._expiry_ms(now):
            return False
        known = self._group(group)
        is_newest = self._track(known, topic, partition).window.add(
            offset, order=order, timestamp_ms=timestamp_ms, broker_offset=ends[-1], observed_at_ms=now * 1000
        )
        if is_newest:
            known.last_commit_ms = timestamp_ms  # the commit's own time, even if the window merged it
        return True

    def put_owner(self, group: str, topic: str, partition: int, owner: str, client_id: str) -> None:
        """Set the owner of a partition. This creates the group, but a group without commits is soon purged."""
        known = self._group(group)
        if self._ends(topic, partition):
            tracked = self._track(known, topic, partition)
            tracked.owner, tracked.client_id = owner, client_id

    def delete_group(self, group: str) -> None:
        """Forget a group."""
        self._groups.pop(group, None)

    def fetch(self, group: str, now: int) -> tuple[TrackedPartition, ...] | None:
        """The partitions of a group. ``None`` for an unknown group. Fetching an expired group deletes it."""
        known = self._groups.get(group)
        if known is None:
            return None
        if self._expiry_ms(now) > known.last_commit_ms:
            del self._groups[group]
            return None
        return tuple(
            [
                self._fetch(topic, number, tracked)
                for topic, partitions in known.topics.items()
                for number, tracked in enumerate(partitions)
            ]
        )

    def _fetch(self, topic: str, number: int, tracked: _Partition | None) -> TrackedPartition:
        ends = tuple(self._broker[topic][number])
        if tracked is None:
            return TrackedPartition(topic, number, (), ends)
        return TrackedPartition(topic, number, tracked.window.slots, ends, tracked.owner, tracked.client_id)

    def _group(self, group: str) -> _Group:
        """The group. It is created if it does not exist."""
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group()
        return known

    def _track(self, group: _Group, topic: str, partition: int) -> _Partition:
        """The partition, created if it does not exist. A group's list has a place for each partition of the topic."""
        partitions = group.topics.setdefault(topic, [])
        if partition >= len(partitions):
            partitions.extend([None] * (len(self._broker[topic]) - len(partitions)))
        tracked = partitions[partition]
        if tracked is None:
            tracked = partitions[partition] = _Partition(Window(self._intervals, self._min_distance))
        return tracked

    def _ends(self, topic: str, partition: int) -> Sequence[int]:
        """The newest log ends of a partition. There are none for an unknown partition."""
        histories = self._broker.get(topic, ())
        return histories[partition] if 0 <= partition < len(histories) else ()

    def _expiry_ms(self, now: int) -> int:
        return (now - self._expire_group) * 1000
