"""A fake Burrow that loses ZooKeeper, splits from its network or restarts, and its REST API meanwhile."""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from karrot.event import GroupKey
from support.burrow.burrow_storage import Storage
from support.burrow.fake.fake_burrow import FakeBurrow
from support.burrow.fake.offsets_consumer import OffsetsConsumer, World
from support.burrow.fake.rest_api import RestAnswer, RestApi
from support.burrow.fake.simulated_kafka import Record, SimulatedCommit, SimulatedOwner


class OutageState(Enum):
    """The state of Burrow's HTTP server: it does not listen, answers ``STARTING``, or answers ``READY``."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Outage:
    """The three steps of a restart, in simulated seconds.

    ``down``: Burrow does not listen. ``starting``: it listens, is not ready and lists nothing. ``loading``: it is ready
    and lists topics but no groups, until it has read ``__consumer_offsets``. It reads the last commit of each
    partition. With ``start_latest`` it reads nothing old: a group appears with its next commit, without owners.
    """

    down: float = 1.0
    starting: float = 1.0
    loading: float = 5.0
    start_latest: bool = False

    def begins(self, at: float) -> "RestartTimes":
        """The times of a restart that begins at ``at``."""
        return RestartTimes(
            at + self.down, at + self.down + self.starting, at + self.down + self.starting + self.loading
        )


class RestartTimes(NamedTuple):
    """When Burrow starts to listen, becomes ready, and has read the old records."""

    listens_at: float = -math.inf
    ready_at: float = -math.inf
    loaded_at: float = -math.inf

    def state(self, at: float) -> OutageState:
        """The state of the HTTP server at a time."""
        if at < self.listens_at:
            return OutageState.DOWN
        return OutageState.STARTING if at < self.ready_at else OutageState.READY


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


class CompactedTopic(OffsetsConsumer):
    """Keeps the newest records as Kafka does. While ``is_reading`` is false, they go only to Kafka."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_reading = True
        self._compacted: dict[GroupKey, _Compacted] = {}

    def written(self, key: GroupKey, records: Iterable[Record], now_ms: int) -> None:
        storage = self.storages[key.cluster]
        for record in records:
            kept = self._compacted.setdefault(key, _Compacted())
            if isinstance(record, SimulatedCommit):
                commit = _Kept(record, next(self._orders[key.cluster]), now_ms)
                kept.commits[record.topic, record.partition] = commit
                if self.is_reading:
                    _put_commit(storage, key.consumer, commit, now_ms)
                continue
            if isinstance(record, SimulatedOwner):
                kept.owners[record.topic, record.partition] = record
            else:
                del self._compacted[key]
            if self.is_reading:
                super().written(key, [record], now_ms)

    def forget(self, *, from_latest: bool) -> None:
        """Empty the storage, as after a restart. ``from_latest`` also drops the backlog of old records."""
        self.storages = {cluster: Storage() for cluster in self._world}
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


def _put_commit(storage: Storage, group: str, kept: _Kept, now_ms: int) -> None:
    topic, partition, offset = kept.commit
    storage.put_commit(group, topic, partition, offset, order=kept.order, timestamp_ms=kept.at_ms, now=now_ms // 1000)


class RestartableBurrow(FakeBurrow):
    """The fake Burrow with failures, which happen at the last simulated time."""

    consumer = CompactedTopic
    _offsets: CompactedTopic
    _start = RestartTimes()

    def state(self, now_ms: int) -> OutageState:
        """The state of the HTTP server at a time."""
        with self.at(now_ms):
            return self._start.state(self._at)

    def lose_lock(self) -> None:
        """Take the lock away, as if ZooKeeper were down: no Burrow evaluates or sends until `failover` is called."""
        with self._one_at_a_time:
            self._lock.release()

    def split(self) -> None:
        """Give the lock to one more Burrow, as in a split network: both send every group, each with its own ids."""
        with self._one_at_a_time:
            self._hand_lock(self._lock.instance())

    def restart(self, outage: Outage = Outage()) -> None:
        """Restart Burrow with empty storage. It evaluates nothing in its first 60 seconds."""
        with self._one_at_a_time:
            self._start = start = outage.begins(self._at)
            self._lock.release()
            self._offsets.is_reading = False
            self._offsets.forget(from_latest=outage.start_latest)
            self._agenda = [each for each in self._agenda if each[2] != self._refresh_groups]
            heapq.heapify(self._agenda)
            self._do_at(start.ready_at, self._while_current(self._offsets.read_log_ends))
            self._do_at(start.loaded_at, self._while_current(self._load))
            self._start_notifier(start.listens_at + self.settings.group_refresh)

    def _load(self, at: float) -> None:
        self._offsets.is_reading = True
        self._offsets.read_backlog(self._wall_ms(at))

    def _read_log_ends(self, at: float) -> None:
        if at >= self._start.ready_at:
            super()._read_log_ends(at)
        else:
            self._do_at(at + self.settings.offset_refresh, self._read_log_ends)

    def _while_current(self, action: Callable[[float], None]) -> Callable[[float], None]:
        """An action that does nothing after a later restart."""
        start = self._start
        return lambda at: action(at) if self._start is start else None


class RestartableApi(RestApi):
    """The REST API of a Burrow that restarts. While it is down, connections break."""

    _burrow: RestartableBurrow

    def answer(self, target: str) -> RestAnswer:
        state = self._burrow.state(self._clock.wall_ms())
        if state is OutageState.DOWN:
            raise ConnectionAbortedError  # the closest to "not listening" for a socket that listens
        found = super().answer(target)
        is_ready_call = urlsplit(target).path == "/burrow/admin/ready"
        return (
            found._replace(status=503, body=b"STARTING") if is_ready_call and state is OutageState.STARTING else found
        )
