"""Chooses the groups that have metrics, because each metric costs money."""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from itertools import takewhile
from typing import TypeVar

import msgspec

from karrot.event import GroupKey
from karrot.settings.options import CloudWatch as Options

K = TypeVar("K")

OUTSIDE_BOUND = 100_000
"""Up to this number, groups without metrics are counted exactly. A larger number counts as this number."""

_QUARTER_MS = 6 * 3_600_000  # the unit of silence: a quarter of a day, so a group's note changes 4 times a day at most
_SILENT_QUARTERS = 4
_LONGEST = 1024


class Membership:
    """The groups whose metrics are sent ("inside" the limit), at most ``options.max_groups``.

    A group stays inside until it is deleted, or until it was silent for a day (24 to 30 hours of log time) and another
    group needs its place. `dump` and `restore` keep the groups over a restart. Only one thread may use this object.
    """

    def __init__(self, options: Options) -> None:
        self._max_groups = options.max_groups
        self._inside: OrderedDict[GroupKey, int] = OrderedDict()  # the quarter of each group's last event, oldest first
        self._outside: OrderedDict[int, int] = OrderedDict()  # also quarters, by the key's hash: names can be long
        self._quarter = 0
        self.changed = False
        """Whether the groups changed since the last `dump` that was kept. Who keeps it sets this to false."""

    @classmethod
    def restore(cls, dump: bytes | None, options: Options) -> "Membership":
        """The wanted groups of a dump; if not all fit, the ones with the newest events. Raises `ValueError`."""
        membership = cls(options)
        try:
            kept = msgspec.json.decode(dump or b"{}", type=dict[str, dict[str, int]])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"the saved list of groups inside the cap cannot be read: {error}") from error
        every = [(quarter, GroupKey(cluster, one)) for cluster, of in kept.items() for one, quarter in of.items()]
        heard = sorted(each for each in every if options.wants(each[1].consumer))[-options.max_groups :]
        membership._inside.update((key, quarter) for quarter, key in heard)
        membership._quarter = heard[-1][0] if heard else 0
        membership.changed = len(heard) != len(every)
        return membership

    @property
    def inside(self) -> int:
        return len(self._inside)

    @property
    def outside(self) -> int:
        """The number of groups that were left out within the last day. It is exact up to `OUTSIDE_BOUND`."""
        for silent in list(_silent(self._outside, self._quarter)):
            del self._outside[silent]
        return len(self._outside)

    def admits(self, key: GroupKey, log_time_ms: int) -> bool:
        """Take a group with a new event inside, if there is a place. Return whether the group is inside."""
        key = _shortened(key)
        self._quarter = max(self._quarter, log_time_ms // _QUARTER_MS)
        if key not in self._inside and len(self._inside) >= self._max_groups:
            silent = next(_silent(self._inside, self._quarter), None)
            if silent is None:
                self._outside[hash(key)] = self._quarter
                self._outside.move_to_end(hash(key))
                if len(self._outside) > OUTSIDE_BOUND:
                    self._outside.popitem(last=False)
                return False
            del self._inside[silent]
        if self._inside.get(key) != self._quarter:
            self._inside[key] = self._quarter
            self._inside.move_to_end(key)
            self._outside.pop(hash(key), None)
            self.changed = True
        return True

    def leaves(self, key: GroupKey) -> None:
        key = _shortened(key)
        self._outside.pop(hash(key), None)
        if self._inside.pop(key, None) is not None:
            self.changed = True

    def dump(self) -> bytes:
        """The groups inside, as JSON for `restore`. The same groups always give the same JSON."""
        kept: dict[str, dict[str, int]] = {}
        for (cluster, consumer), quarter in self._inside.items():
            kept.setdefault(cluster, {})[consumer] = quarter
        return msgspec.json.encode(kept, order="sorted")


def _shortened(key: GroupKey) -> GroupKey:
    """The key with long names shortened, for the note. Two names stay different by their SHA-256."""
    return GroupKey(
        *(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}~{sha256(name.encode()).hexdigest()}" for name in key)
    )


def _silent(heard: OrderedDict[K, int], quarter: int) -> Iterator[K]:
    """The groups that were silent for a day, the longest silent group first."""
    return takewhile(lambda key: quarter - heard[key] > _SILENT_QUARTERS, heard)
