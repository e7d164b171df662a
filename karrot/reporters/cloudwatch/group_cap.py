"""Chooses which groups have metrics, up to a limit, and notices if two groups write the same metric.

A group that has metrics keeps them, because an alarm may use them. A new group never takes such a group's place.
"""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from itertools import takewhile
from typing import TypeVar

import msgspec

from karrot.event import GroupKey
from karrot.reporters.cloudwatch.options import Options

K = TypeVar("K")

OUTSIDE_BOUND = 100_000
"""Up to this number, groups without metrics are counted exactly. A larger number counts as this number."""

NAMES_BOUND = 100_000
"""The most names that are remembered. If there are more, the names with the oldest events are forgotten."""

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
        self._changed = False

    @classmethod
    def restore(cls, dump: bytes | None, options: Options) -> "Membership":
        """The groups that were inside, without the groups that the options now exclude.

        If fewer groups fit now, the groups with the newest events stay. Raises `ValueError` if ``dump`` is not a dump.
        """
        membership = cls(options)
        kept = _read(dump) if dump else {}
        heard = [
            (quarter, GroupKey(cluster, consumer))
            for cluster, groups in kept.items()
            for consumer, quarter in groups.items()
            if options.wants(consumer)
        ]
        heard.sort()
        for quarter, key in heard[-options.max_groups :]:
            membership._inside[key] = quarter
        membership._quarter = heard[-1][0] if heard else 0
        membership._changed = len(membership._inside) != sum(map(len, kept.values()))
        return membership

    @property
    def inside(self) -> int:
        """The number of groups inside."""
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
        if key not in self._inside and not self._has_place():
            self._note_outside(key)
            return False
        if self._inside.get(key) != self._quarter:
            self._inside[key] = self._quarter
            self._inside.move_to_end(key)
            self._outside.pop(hash(key), None)
            self._changed = True
        return True

    def leaves(self, key: GroupKey) -> None:
        """Remove a deleted group, so that another group can take its place."""
        key = _shortened(key)
        self._outside.pop(hash(key), None)
        if self._inside.pop(key, None) is not None:
            self._changed = True

    @property
    def changed(self) -> bool:
        """Whether a dump would differ from the last saved dump."""
        return self._changed

    def kept(self) -> None:
        """Record that the dump was saved."""
        self._changed = False

    def dump(self) -> bytes:
        """The groups inside, as JSON for `restore`. The same groups always give the same JSON."""
        kept: dict[str, dict[str, int]] = {}
        for (cluster, consumer), quarter in self._inside.items():
            kept.setdefault(cluster, {})[consumer] = quarter
        return msgspec.json.encode(kept, order="sorted")

    def _has_place(self) -> bool:
        if len(self._inside) >= self._max_groups:
            silent = next(_silent(self._inside, self._quarter), None)
            if silent is None:
                return False
            del self._inside[silent]
        return True

    def _note_outside(self, key: GroupKey) -> None:
        self._outside[hash(key)] = self._quarter
        self._outside.move_to_end(hash(key))
        if len(self._outside) > OUTSIDE_BOUND:
            self._outside.popitem(last=False)


class LegacyNames:
    """The cluster for which each metric of the legacy layout was last sent.

    In the legacy layout, groups with the same name in two clusters write the same metric. Only one thread may use this
    object.
    """

    def __init__(self, bound: int = NAMES_BOUND) -> None:
        self._bound = bound
        self._clusters: OrderedDict[str, str] = OrderedDict()

    def taken_over(self, name: str, cluster: str) -> bool:
        """Record that a metric is sent for a cluster. Return whether it replaces the value of another cluster."""
        before = self._clusters.get(name)
        self._clusters[name] = cluster
        self._clusters.move_to_end(name)
        if len(self._clusters) > self._bound:
            self._clusters.popitem(last=False)
        return before is not None and before != cluster


def _shortened(key: GroupKey) -> GroupKey:
    """The key with long names shortened. A client can choose names of megabytes, which the note would repeat.

    The options look only at the beginning of a name. Two names stay different by their SHA-256.
    """
    return GroupKey(
        *(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}~{sha256(name.encode()).hexdigest()}" for name in key)
    )


def _silent(heard: OrderedDict[K, int], quarter: int) -> Iterator[K]:
    """The groups that were silent for a day, the longest silent group first."""
    return takewhile(lambda key: quarter - heard[key] > _SILENT_QUARTERS, heard)


def _read(dump: bytes) -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(dump, type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the saved list of groups inside the cap cannot be read: {error}") from error
