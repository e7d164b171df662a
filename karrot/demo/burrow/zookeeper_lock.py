"""Simulates the ZooKeeper lock ``<root-path>/notifier`` of several Burrows, and what each remembers of the groups.

Only a holder evaluates and sends (v1.9.5, ``core/internal/notifier/coordinator.go``, ``manageEvalLoop``). What a
Burrow remembers while another holds the lock is not lost: it goes on with its own incidents when it gets it back.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count

from karrot.demo.burrow.notifier import NotifiedGroup
from karrot.event import GroupKey


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
