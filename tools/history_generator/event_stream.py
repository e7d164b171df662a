"""Generates the events that one cluster's service receives: Burrow's webhooks and its answers to a resync."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from karrot.burrow.notification_rules import NotifierSettings
from karrot.burrow.payload import to_wire
from karrot.event import LagEvent, Source, Status
from support.burrow.fake.fake_burrow import BurrowSettings, FakeBurrow, Post
from tools.history_generator.healthy_group import HealthyGroup
from tools.history_generator.history_scenario import DAY, MINUTE_SPEED, consumer_groups, planted

MINUTE_MS: Final = 60_000
_RESYNC_MINUTES = 10
_FAILOVER = ("prod-us", 11 * 60)
"""The minute at which another Burrow takes over while a group stalls. The group's incident then gets another id."""
_SETTINGS = BurrowSettings(
    NotifierSettings(threshold=Status.OK, interval=1, send_interval=0.5, send_close=True), group_refresh=1
)
"""Burrow gives one verdict per minute on every group. The other numbers are minutes too."""


def events(cluster: str, *, start_ms: int, groups: int, days: int, seed: int) -> Iterator[tuple[LagEvent, bytes]]:
    """Yield each event with its body: the webhooks, and a resync every ten minutes.

    The groups are listed every minute, so a deleted group is found before its silence ends its incident.
    """
    said = _Burrow.over(cluster, start_ms=start_ms, groups=groups, days=days, seed=seed)
    resync = _Resync(said, cluster)
    for minute in range(1, days * DAY + 1):
        now_ms = start_ms + minute * MINUTE_MS - 1
        if (cluster, minute) == _FAILOVER:
            said.failover(now_ms - MINUTE_MS)
        yield from ((post.event, post.body) for post in said.due(now_ms))
        answers = resync.once(now_ms, ask=minute % _RESYNC_MINUTES == 0)
        yield from ((event, to_wire(event)) for event in answers)


@dataclass(frozen=True, slots=True)
class _Burrow:
    """One Burrow. Groups with planted incidents use `FakeBurrow`. All other groups use the faster `HealthyGroup`."""

    cluster: str
    start_ms: int
    fake: FakeBurrow
    healthy: dict[str, HealthyGroup]

    @classmethod
    def over(cls, cluster: str, *, start_ms: int, groups: int, days: int, seed: int) -> Self:
        random = Random(f"{seed}/{cluster}")  # noqa: S311 (a simulation)
        troubled = {one.consumer for one in planted(groups, days) if one.cluster == cluster}
        everyone = consumer_groups(cluster, groups, days, seed)
        evaluated = {cluster: [group for group in everyone if group.name in troubled]}
        fake = FakeBurrow(evaluated, random, start_ms=start_ms, speed=MINUTE_SPEED, settings=_SETTINGS)
        healthy = {
            group.name: HealthyGroup(cluster, group, random, start_ms=start_ms, speed=MINUTE_SPEED, settings=_SETTINGS)
            for group in everyone
            if group.name not in troubled
        }
        return cls(cluster, start_ms, fake, healthy)

    def due(self, now_ms: int) -> list[Post]:
        """Return the posts since the last call, up to a time."""
        at = self._at(now_ms)
        posts = [post for group in self.healthy.values() for post in group.due(at)]
        return sorted(self.fake.due(now_ms) + posts, key=lambda post: post.event.observed_at_ms)

    def failover(self, now_ms: int) -> None:
        """Give the lock to another Burrow."""
        self.fake.failover()
        for group in self.healthy.values():
            group.failover(self._at(now_ms))

    def groups(self, now_ms: int) -> list[str]:
        """Return every group that is known at a time."""
        with self.fake.at(now_ms) as storages:
            return [*storages[self.cluster].groups(), *self.healthy]

    def verdict(self, group: str, now_ms: int) -> LagEvent | None:
        """Return the verdict on a group with all its partitions."""
        if group in self.healthy:
            return self.healthy[group].verdict(self._at(now_ms), show_all=True)
        return self.fake.verdict(self.cluster, group, now_ms)

    def _at(self, now_ms: int) -> float:
        return (now_ms - self.start_ms) * MINUTE_SPEED / 1000


@dataclass(slots=True)
class _Resync:
    """Lists the groups, reads each group if asked, and reports groups that are missing in two lists."""

    burrow: _Burrow
    cluster: str
    known: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()

    def once(self, now_ms: int, *, ask: bool) -> Iterator[LagEvent]:
        listed = self.burrow.groups(now_ms)
        for group in listed if ask else ():
            verdict = self.burrow.verdict(group, now_ms)
            if verdict is not None:
                yield verdict._replace(source=Source.REST, observed_at_ms=now_ms)
        gone = self.known.difference(listed)
        for group in sorted(gone & self.missing):
            yield LagEvent(self.cluster, group, Status.NOTFOUND.name, None, observed_at_ms=now_ms, source=Source.REST)
        self.missing = gone - self.missing
        self.known = frozenset(listed) | self.missing
