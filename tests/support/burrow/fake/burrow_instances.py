"""Keeps what several Burrows know of the groups, and which of them has the lock.

Source: v1.9.5, ``core/internal/notifier/coordinator.go``. If several Burrows run, only the holder of the ZooKeeper lock
``<root-path>/notifier`` evaluates and sends (``manageEvalLoop``). A Burrow that loses the lock keeps its memory: when
it gets the lock back, it continues its own incidents.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count

from karrot.burrow.notifier import NotifiedGroup
from karrot.event import GroupKey


@dataclass(slots=True)
class NotifiedAt:
    """What one Burrow's notifier knows of a group. ``evaluated_at`` is a simulated time."""

    evaluated_at: float
    notified: NotifiedGroup = field(default_factory=NotifiedGroup)


@dataclass(slots=True)
class Instance:
    """One Burrow. ``tenure`` is a new object each time the Burrow gets the lock, and ``None`` without the lock."""

    name: str
    groups: dict[GroupKey, NotifiedAt] = field(default_factory=dict)
    tenure: object | None = None

    def refresh(
        self, known: Collection[GroupKey], meet: Callable[[GroupKey], NotifiedAt]
    ) -> list[tuple[GroupKey, NotifiedAt]]:
        """Forget deleted groups and add new ones. Returns the new groups."""
        met = [(key, meet(key)) for key in known if key not in self.groups]
        self.groups = {key: self.groups[key] for key in known if key in self.groups} | dict(met)
        return met


class Lock:
    """The ZooKeeper lock. One Burrow has it, or none if ZooKeeper is down, or several if the network is split."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.instances: dict[str, Instance] = {}

    def instance(self, name: str | None = None) -> Instance:
        """The Burrow with this name. Without a name, a new Burrow."""
        name = name or next(each for number in self._numbers if (each := f"burrow-{number}") not in self.instances)
        return self.instances.setdefault(name, Instance(name))

    def release(self) -> None:
        """Take the lock from every Burrow."""
        for instance in self.instances.values():
            instance.tenure = None
