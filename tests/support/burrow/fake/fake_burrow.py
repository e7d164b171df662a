"""Fakes Burrow: applies Burrow's rules for verdicts and notifications to a simulated Kafka.

The caller gives the times. `FakeBurrow.due` returns the posts that Burrow would have sent up to a given time.
"""

import heapq
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import NamedTuple

from karrot.burrow.notification_rules import NotifiedGroup, NotifierSettings, SentNotification, notify
from karrot.burrow.payload import to_wire
from karrot.burrow.rules import evaluate_group
from karrot.event import GroupKey, LagEvent, Status
from karrot.text import EPOCH
from support.burrow.burrow_storage import Storage
from support.burrow.fake.simulated_kafka import ConsumerGroup, Record, SimulatedCommit, SimulatedOwner

HISTORY_SECONDS = 40.0
"""The groups begin to commit this many simulated seconds before the start, so their windows are full at the start."""
_HEAD, _TAIL = b'{"Event":', b"}"
_ESCAPED = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)


@dataclass(frozen=True, slots=True)
class BurrowSettings:
    """The settings of a ``burrow.toml``, in seconds. ``notifier`` has Burrow's defaults. The others are short."""

    notifier: NotifierSettings = field(default_factory=NotifierSettings)
    offset_refresh: float = 1.0
    group_refresh: float = 60.0

    def period(self, speed: float) -> float:
        """The time between two evaluations of a group. Each millisecond, Burrow checks whether the interval is over."""
        return self.notifier.interval + speed / 1000


QUICK = BurrowSettings(NotifierSettings(threshold=Status.OK, interval=5, send_interval=3, send_close=True))
"""A verdict on every group every 5 s."""


class Post(NamedTuple):
    """A request that is due. The event's ``observed_at_ms`` is the time when Burrow sends the request."""

    event: LagEvent
    is_close: bool

    @property
    def body(self) -> bytes:
        r"""The body that Burrow sends with the template ``{\n  "Event": {{ jsonencoder . }}\n}\n``."""
        notification = as_go_writes(to_wire(self.event)).removeprefix(_HEAD).removesuffix(_TAIL)
        return b'{\n  "Event": %b\n}\n' % notification


@dataclass(slots=True)
class _Watched:
    """What a Burrow's notifier knows of a group. ``evaluated_at`` is a simulated time."""

    evaluated_at: float
    notified: NotifiedGroup = field(default_factory=NotifiedGroup)


_Notifier = dict[GroupKey, _Watched]


class FakeBurrow:
    """One Burrow for several clusters.

    The simulated times of all events depend only on the seed, so many calls of ``due`` return the same posts as one
    call. ``speed`` makes simulated seconds shorter: rates grow and intervals shrink. Every timestamp is a time of the
    caller's wall clock, and the simulation starts at ``start_ms`` of that clock. Several threads can use this class.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[ConsumerGroup]],
        random: Random,
        *,
        start_ms: int,
        speed: float = 1.0,
        settings: BurrowSettings = QUICK,
    ) -> None:
        self.settings = settings
        self._world = groups
        self._random = random
        self._start_ms = start_ms
        self._speed = speed
        told = settings.notifier  # in seconds of the wall clock:
        self._notifier = replace(told, interval=told.interval / speed, send_interval=told.pause_ms / 1000 / speed)
        self._period = settings.period(speed)
        self._orders = {cluster: count(1) for cluster in groups}
        self._storages = {cluster: Storage() for cluster in groups}
        self._one_at_a_time = threading.RLock()
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._agenda_numbers = count()
        self._posts: list[Post] = []
        self._at = -HISTORY_SECONDS
        self._begin()

    def due(self, now_ms: int) -> list[Post]:
        """The posts since the last call, in Burrow's order. The list is empty if the last call had a later time."""
        with self.at(now_ms):
            posts, self._posts = self._posts, []
            return posts

    @contextmanager
    def at(self, now_ms: int) -> Iterator[Mapping[str, Storage]]:
        """Burrow's storage of each cluster at ``now_ms``. Inside the ``with`` block the simulation is paused."""
        with self._one_at_a_time:
            self._run_until((now_ms - self._start_ms) * self._speed / 1000)
            yield self._storages

    def verdict(self, cluster: str, group: str, now_ms: int) -> LagEvent | None:
        """The verdict on a group with all its partitions. ``None`` for an unknown group."""
        with self.at(now_ms) as storages:
            return self._verdict(GroupKey(cluster, group), self._at, show_all=True) if cluster in storages else None

    def failover(self) -> None:
        """Let another Burrow take over, at the last simulated time.

        From then on, Burrow evaluates all groups together, no longer spread over the interval. It gives incidents new
        ids, and closes no old incidents.
        """
        with self._one_at_a_time:
            notifier: _Notifier = {}
            self._notifiers.append(notifier)
            self._learn_groups(notifier, lambda: -math.inf)
            for key, watched in notifier.items():
                self._evaluate_from(self._at, notifier, key, watched)

    def _begin(self) -> None:
        self._do_at(self._at, self._read_log_ends)
        for cluster, members in self._world.items():
            for group in members:
                self._do_at(group.next_step(self._at), self._stepper(cluster, group))
        self._run_until(0.0)
        self._start_notifier(0.0)

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

    def _read_log_ends(self, at: float) -> None:
        for cluster, groups in self._world.items():
            storage = self._storages[cluster]
            for topic in {topic.name: topic for group in groups for topic in group.topics}.values():
                ends = topic.ends(at)
                for partition, end in enumerate(ends):
                    storage.put_log_end(topic.name, partition, int(end), partition_count=len(ends))
        self._do_at(at + self.settings.offset_refresh, self._read_log_ends)

    def _stepper(self, cluster: str, group: ConsumerGroup) -> Callable[[float], None]:
        key = GroupKey(cluster, group.name)

        def step(at: float) -> None:
            self._read(key, group.step(at), self._wall_ms(at))
            self._do_at(group.next_step(at), step)

        return step

    def _read(self, key: GroupKey, records: Iterable[Record], now_ms: int) -> None:
        storage = self._storages[key.cluster]
        for record in records:
            if isinstance(record, SimulatedCommit):
                topic, partition, offset = record
                order, now = next(self._orders[key.cluster]), now_ms // 1000
                storage.put_commit(key.consumer, topic, partition, offset, order=order, timestamp_ms=now_ms, now=now)
            elif isinstance(record, SimulatedOwner):
                storage.put_owner(key.consumer, *record)
            else:
                storage.delete_group(key.consumer)

    def _verdict(self, key: GroupKey, at: float, *, show_all: bool) -> LagEvent | None:
        now_ms = self._wall_ms(at)
        partitions = self._storages[key.cluster].fetch(key.consumer, now_ms // 1000)
        if partitions is None:
            return None
        return evaluate_group(key.cluster, key.consumer, partitions, now_ms, show_all=show_all)

    # --- what Burrow sends ---

    def _start_notifier(self, first_refresh: float) -> None:
        self._notifiers: list[_Notifier] = [{}]
        self._do_at(first_refresh, self._refresh_groups)

    def _refresh_groups(self, at: float) -> None:
        """Forget deleted groups. New groups are first evaluated at a random time within the interval."""

        def meet() -> float:
            return at + self._random.uniform(0, self.settings.notifier.interval) - self._period

        for notifier in self._notifiers:
            for key in self._learn_groups(notifier, meet):
                self._evaluate_from(at, notifier, key, notifier[key])
        self._do_at(at + self.settings.group_refresh, self._refresh_groups)

    def _learn_groups(self, notifier: _Notifier, meet: Callable[[], float]) -> list[GroupKey]:
        """Forget deleted groups and add new ones. Returns the new groups."""
        known = [GroupKey(cluster, group) for cluster, storage in self._storages.items() for group in storage.groups()]
        new = {key: _Watched(meet()) for key in known if key not in notifier}
        kept = {key: notifier[key] for key in known if key in notifier}
        notifier.clear()
        notifier.update(kept | new)
        return [*new]

    def _evaluate_from(self, at: float, notifier: _Notifier, key: GroupKey, watched: _Watched) -> None:
        def evaluate(at: float) -> None:
            if self._notifiers[-1] is notifier and notifier.get(key) is watched:
                watched.evaluated_at = at
                self._evaluate(key, watched, at)
                self._do_at(at + self._period, evaluate)

        if self._notifiers[-1] is notifier:  # only the Burrow with the ZooKeeper lock evaluates and sends
            self._do_at(max(at, watched.evaluated_at + self._period), evaluate)

    def _evaluate(self, key: GroupKey, watched: _Watched, at: float) -> None:
        verdict = self._verdict(key, at, show_all=False)
        if verdict is None:
            return
        status = Status[verdict.status_text]
        sent = notify(
            watched.notified,
            status,
            verdict.observed_at_ms,
            self._notifier,
            partial(incident_id, self._random),
        )
        if sent is not None:
            self._posts.append(posted(verdict, sent))


def posted(verdict: LagEvent, sent: SentNotification) -> Post:
    """The post for a verdict. The verdict must list only the partitions that are worse than OK."""
    incident = sent.incident
    if incident is None:
        return Post(verdict, sent.is_close)
    start = EPOCH + timedelta(milliseconds=incident.start_ms)
    return Post(verdict._replace(incident_id=incident.id, incident_start=start), sent.is_close)


def incident_id(random: Random) -> uuid.UUID:
    """A random incident id, in Burrow's format."""
    return uuid.UUID(int=random.getrandbits(128), version=4)


def as_go_writes(body: bytes) -> bytes:
    """The JSON with Go's escapes for HTML characters. These characters occur only inside strings."""
    for character, escaped in _ESCAPED:
        body = body.replace(character, escaped)
    return body
