"""A Burrow without Kafka: the reference rules and the notifier over a simulated world, on a clock of the caller's.

Nothing here sleeps or sends: `FakeBurrow.due` says what Burrow would have posted up to a moment.
"""

import heapq
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import NamedTuple

from karrot.burrow.payload import to_wire
from karrot.burrow.rules import DEFAULT_INTERVALS, evaluate_group
from karrot.burrow.storage import Storage
from karrot.event import LagEvent, Status
from karrot.fakes.catalogue import application_groups, burrows_own_group
from karrot.fakes.kafka import Commit, ConsumerGroup, Deletion, Owner, Record
from karrot.fakes.notifier import Incident, NotifiedGroup, NotifierSettings, notify

__all__ = ["DEMO", "BurrowSettings", "FakeBurrow", "Post", "simulate"]

_HISTORY_SECONDS = 40.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEAD, _TAIL = b'{"Event":', b"}"


@dataclass(frozen=True, slots=True)
class BurrowSettings:
    """What a ``burrow.toml`` says, in seconds. The notifier's defaults are Burrow's, the rest is made for the demo."""

    notifier: NotifierSettings = field(default_factory=NotifierSettings)
    intervals: int = DEFAULT_INTERVALS
    offset_refresh: float = 1.0
    group_refresh: float = 60.0


DEMO = BurrowSettings(NotifierSettings(threshold=Status.OK, interval=5, send_interval=3, send_close=True))
"""A verdict on every group each 5 s, so that a page moves."""


class Post(NamedTuple):
    """A request that is due: an event whose ``observed_at_ms`` is when Burrow evaluated the group."""

    event: LagEvent
    is_close: bool

    @property
    def body(self) -> bytes:
        r"""What Burrow sends with the template ``{\n  "Event": {{ jsonencoder . }}\n}\n``."""
        notification = to_wire(self.event).removeprefix(_HEAD).removesuffix(_TAIL)
        return b'{\n  "Event": %b\n}\n' % notification


class _Key(NamedTuple):
    cluster: str
    group: str


class FakeBurrow:
    """One Burrow over several clusters.

    Everything happens at simulated seconds that depend on the seed alone, so ``due`` returns the same posts however
    often it is called. ``speed`` makes those seconds shorter: rates grow and intervals shrink, while every timestamp
    is a moment of the caller's wall clock, on which the start is at ``start_ms``. Not safe to use from several threads.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[ConsumerGroup]],
        random: Random,
        *,
        start_ms: int,
        speed: float = 1.0,
        settings: BurrowSettings = DEMO,
    ) -> None:
        self._random = random
        self._start_ms = start_ms
        self._speed = speed
        self._settings = settings
        self._notifier = replace(
            settings.notifier,
            interval=settings.notifier.interval / speed,
            send_interval=settings.notifier.pause_ms / 1000 / speed,
        )
        self._storages = {cluster: Storage(intervals=settings.intervals) for cluster in groups}
        self._orders = {cluster: count(1) for cluster in groups}
        self._notified: dict[_Key, NotifiedGroup] = {}
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._agenda_numbers = count()
        self._posts: list[Post] = []
        self._at = -_HISTORY_SECONDS
        self._begin(groups)

    def due(self, now_ms: int) -> list[Post]:
        """What Burrow has posted since the last call, in its order. A moment before the last call's brings nothing."""
        self._run_until((now_ms - self._start_ms) * self._speed / 1000)
        posts, self._posts = self._posts, []
        return posts

    def failover(self) -> None:
        """Let another Burrow take over: all groups are due at once and stay in phase, and incidents get new ids."""
        self._notified = {key: NotifiedGroup() for key in self._known_groups()}
        for key, notified in self._notified.items():
            self._evaluate_at(self._at, key, notified)

    def _begin(self, groups: Mapping[str, Sequence[ConsumerGroup]]) -> None:
        for cluster, members in groups.items():
            self._do_at(self._at, self._log_ends_reader(cluster, members))
            for group in members:
                self._do_at(group.next_step(self._at), self._stepper(cluster, group))
        self._run_until(0.0)
        self._do_at(0.0, self._refresh_groups)

    # --- time ---

    def _do_at(self, at: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._agenda_numbers), action))

    def _run_until(self, until: float) -> None:
        while self._agenda and self._agenda[0][0] <= until:
            at, _, action = heapq.heappop(self._agenda)
            action(at)
        self._at = max(self._at, until)

    def _wall_ms(self, at: float) -> int:
        return self._start_ms + int(at * 1000 / self._speed)

    # --- what Burrow reads ---

    def _log_ends_reader(self, cluster: str, groups: Iterable[ConsumerGroup]) -> Callable[[float], None]:
        storage = self._storages[cluster]
        topics = {topic.name: topic for group in groups for topic in group.topics}

        def read(at: float) -> None:
            for name, topic in topics.items():
                ends = topic.ends(at)
                for partition, end in enumerate(ends):
                    storage.put_log_end(name, partition, int(end), partition_count=len(ends))
            self._do_at(at + self._settings.offset_refresh, read)

        return read

    def _stepper(self, cluster: str, group: ConsumerGroup) -> Callable[[float], None]:
        def step(at: float) -> None:
            now_ms = self._wall_ms(at)
            for record in group.step(at):
                self._take(_Key(cluster, group.name), record, now_ms)
            self._do_at(group.next_step(at), step)

        return step

    def _take(self, key: _Key, record: Record, now_ms: int) -> None:
        storage = self._storages[key.cluster]
        match record:
            case Commit():
                order = next(self._orders[key.cluster])
                storage.put_commit(key.group, *record, order=order, timestamp_ms=now_ms, now=now_ms // 1000)
            case Owner():
                storage.put_owner(key.group, *record)
            case Deletion():
                storage.delete_group(key.group)

    # --- what Burrow sends ---

    def _known_groups(self) -> list[_Key]:
        return [_Key(cluster, group) for cluster, storage in self._storages.items() for group in storage.groups()]

    def _refresh_groups(self, at: float) -> None:
        """Forget deleted groups; evaluate new ones from a random moment within the interval on."""
        known = self._known_groups()
        self._notified = {key: self._notified.get(key) or self._met(at, key) for key in known}
        self._do_at(at + self._settings.group_refresh, self._refresh_groups)

    def _met(self, at: float, key: _Key) -> NotifiedGroup:
        notified = NotifiedGroup()
        self._evaluate_at(at + self._random.uniform(0, self._settings.notifier.interval), key, notified)
        return notified

    def _evaluate_at(self, at: float, key: _Key, notified: NotifiedGroup) -> None:
        def evaluate(at: float) -> None:
            if self._notified.get(key) is notified:  # else it was forgotten, or taken over
                self._evaluate(key, notified, self._wall_ms(at))
                # Burrow asks "longer ago than the interval?" every millisecond.
                self._do_at(at + self._settings.notifier.interval + self._speed / 1000, evaluate)

        self._do_at(at, evaluate)

    def _evaluate(self, key: _Key, notified: NotifiedGroup, now_ms: int) -> None:
        partitions = self._storages[key.cluster].fetch(key.group, now_ms // 1000)
        if partitions is None:
            return
        event = evaluate_group(key.cluster, key.group, partitions, now_ms)
        sent = notify(notified, Status[event.status_text], now_ms, self._notifier, self._new_id)
        if sent is not None:
            self._posts.append(Post(_with_incident(event, sent.incident), sent.is_close))

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)


def simulate(
    groups: int, *, seed: int, speed: float, clusters: Sequence[str], now_ms: int, settings: BurrowSettings = DEMO
) -> FakeBurrow:
    """A Burrow over so many groups, dealt out to the clusters, and one of its own in each. It starts at ``now_ms``."""
    world = {cluster: [burrows_own_group(cluster, seed)] for cluster in clusters}
    for number, group in enumerate(application_groups(groups, seed)):
        world[clusters[number % len(clusters)]].append(group)
    random = Random(f"{seed}/burrow")  # noqa: S311 (a simulation)
    return FakeBurrow(world, random, start_ms=now_ms, speed=speed, settings=settings)


def _with_incident(event: LagEvent, incident: Incident | None) -> LagEvent:
    if incident is None:
        return event
    start = _EPOCH + timedelta(milliseconds=incident.start_ms)
    return replace(event, incident_id=incident.id, incident_start=start)
