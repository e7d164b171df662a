"""What was made of a group, kept until something new is heard of it."""

import threading
from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from karrot.event import GroupKey

__all__ = ["Made", "Newest"]

T = TypeVar("T")

Name = tuple[str, GroupKey]
"""A log's id and a group in it."""


class Made(NamedTuple, Generic[T]):
    """A value, and the ``version`` of the group that it was made of."""

    version: object
    value: T


class Newest(Generic[T]):
    """One value for each of up to ``groups`` groups, those first to go that changed longest ago. Any thread may ask."""

    def __init__(self, groups: int = 1000) -> None:
        self._groups = groups
        self._kept: OrderedDict[Name, Made[T]] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, name: Name) -> Made[T] | None:
        """What was made last."""
        with self._lock:
            return self._kept.get(name)

    def keep(self, name: Name, version: object, value: T) -> T:
        """Keep a value instead of the one before; return it."""
        with self._lock:
            self._kept[name] = Made(version, value)
            self._kept.move_to_end(name)
            while len(self._kept) > self._groups:
                self._kept.popitem(last=False)
        return value
