"""Decides, by the rules of Burrow's notifiers, whether a verdict causes a notification, and which.

Source: v1.9.5, ``core/internal/notifier/coordinator.go``. Of several Burrows only a holder of the ZooKeeper lock
``<root-path>/notifier`` evaluates and sends (``manageEvalLoop``). What a Burrow remembers while another holds the lock
is not lost: it goes on with its own incidents when it gets the lock back.
"""

import re
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple, Self

from karrot.event import GroupKey, OpenIncident, Status


@dataclass(frozen=True, slots=True)
class NotifierSettings:
    """One ``[notifier.X]`` section with Burrow's defaults. Seconds; ``send_interval`` is ``interval`` unless given.

    The lists are regular expressions that are found anywhere in a name; ``""`` is none.
    """

    threshold: int = Status.WARN
    interval: float = 60
    send_interval: float | None = None
    send_close: bool = False
    send_once: bool = False
    group_allowlist: str = ""
    group_denylist: str = ""

    @property
    def pause_ms(self) -> float:
        """The milliseconds since the last open that the next one must exceed."""
        return 1000 * (self.interval if self.send_interval is None else self.send_interval)

    def at_speed(self, speed: float) -> Self:
        """The same in seconds of a wall clock on which simulated ones are shorter."""
        return replace(self, interval=self.interval / speed, send_interval=self.pause_ms / 1000 / speed)

    def admits(self, name: str) -> bool:
        """Whether anything is sent of a group."""
        if self.group_denylist and re.search(self.group_denylist, name):
            return False
        return not self.group_allowlist or re.search(self.group_allowlist, name) is not None


class SentNotification(NamedTuple):
    """A request to be sent."""

    incident: OpenIncident | None
    is_close: bool


@dataclass(slots=True)
class NotifiedGroup:
    """What the notifier remembers of one group."""

    incident: OpenIncident | None = None
    last_open_ms: int | None = None


def notify(
    group: NotifiedGroup,
    status: Status,
    now_ms: int,
    settings: NotifierSettings,
    new_id: Callable[[], uuid.UUID],
    *,
    name: str = "",
) -> SentNotification | None:
    """Take a verdict on a group: update what is remembered of it, return what is to be sent.

    Whether the request succeeds makes no difference to Burrow, so it is not asked. A group that the lists keep out
    has incidents all the same.
    """
    if group.incident is None and status > Status.OK:
        group.incident = OpenIncident(str(new_id()), now_ms)
    notification = _decide(group, status, now_ms, settings) if settings.admits(name) else None
    if status is Status.OK:
        group.incident = None
    return notification


def _decide(group: NotifiedGroup, status: Status, now_ms: int, settings: NotifierSettings) -> SentNotification | None:
    if group.incident is not None and status is Status.OK and settings.send_close:
        group.last_open_ms = None
        return SentNotification(group.incident, is_close=True)
    if status < settings.threshold or (settings.send_once and group.last_open_ms is not None):
        return None
    if group.last_open_ms is not None and now_ms - group.last_open_ms <= settings.pause_ms:
        return None
    group.last_open_ms = now_ms
    return SentNotification(group.incident, is_close=False)


@dataclass(slots=True)
class NotifiedAt:
    """A group as one Burrow's notifier knows it; ``evaluated_at`` as in the simulation."""

    evaluated_at: float
    notified: NotifiedGroup = field(default_factory=NotifiedGroup)


@dataclass(slots=True)
class Instance:
    """One Burrow. ``tenure`` is another object each time it gets the lock, and ``None`` while it has not got it."""

    name: str
    groups: dict[GroupKey, NotifiedAt] = field(default_factory=dict)
    tenure: object | None = None

    def refresh(
        self, known: Collection[GroupKey], meet: Callable[[GroupKey], NotifiedAt]
    ) -> list[tuple[GroupKey, NotifiedAt]]:
        """Forget the groups that are gone, meet those that are new and return them."""
        met = [(key, meet(key)) for key in known if key not in self.groups]
        self.groups = {key: self.groups[key] for key in known if key in self.groups} | dict(met)
        return met


class Lock:
    """Who sends: one Burrow, nobody while ZooKeeper is away, and more than one in a split network."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.instances: dict[str, Instance] = {}

    def instance(self, name: str | None = None) -> Instance:
        """A Burrow by name; another one without."""
        name = name or next(each for number in self._numbers if (each := f"burrow-{number}") not in self.instances)
        return self.instances.setdefault(name, Instance(name))

    def release(self) -> None:
        """Nobody holds it."""
        for instance in self.instances.values():
            instance.tenure = None
