"""Choose the groups that have metrics, within a bound, and notice two groups that write one metric.

A group that has metrics keeps them, whatever other groups turn up: no newcomer takes the metric from an alarm.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import TypeVar

import msgspec

from karrot.event import GroupKey
from karrot.reporters.cloudwatch.options import Options

K = TypeVar("K")

OUTSIDE_BOUND = 100_000
"""Groups outside that are counted exactly; more are counted as this many."""

NAMES_BOUND = 100_000
"""Names that are remembered; of more, those heard longest ago are forgotten."""

_QUARTER_MS = 6 * 3_600_000  # silence is measured in these, so that what is kept changes four times a day at most
_SILENT_QUARTERS = 4


class Membership:
    """The groups whose metrics are sent, at most ``options.max_groups``.

    A group stays inside until it is deleted, or until it was silent for a day (24 to 30 hours of log time) and another
    needs its place. Which groups are inside outlives a restart: `dump` it, `restore` it. Not for several threads.
    """

    def __init__(self, options: Options) -> None:
        self._max_groups = options.max_groups
        self._inside: OrderedDict[GroupKey, int] = OrderedDict()  # the quarter each was last heard in, oldest first
        self._outside: OrderedDict[int, int] = OrderedDict()  # the same, by the hash of the key: names can be long
        self._quarter = 0
        self._changed = False

    @classmethod
    def restore(cls, dump: bytes | None, options: Options) -> "Membership":
        """The groups that were inside, without those that are no longer wanted; if fewer fit, those heard last.

        Raises `ValueError` for what is no dump.
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
        """How many groups have a place."""
        return len(self._inside)

    @property
    def outside(self) -> int:
        """How many groups were refused a place within the last day: exact up to `OUTSIDE_BOUND`."""
        for silent in list(_silent(self._outside, self._quarter)):
            del self._outside[silent]
        return len(self._outside)

    def admits(self, key: GroupKey, log_time_ms: int) -> bool:
        """Whether a group that was just heard is inside; it takes a place if there is one."""
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
        """Take a deleted group out: its place is free."""
        self._outside.pop(hash(key), None)
        if self._inside.pop(key, None) is not None:
            self._changed = True

    @property
    def changed(self) -> bool:
        """Whether a dump would differ from what was kept last."""
        return self._changed

    def kept(self) -> None:
        """The dump was kept."""
        self._changed = False

    def dump(self) -> bytes:
        """The groups inside, as JSON that `restore` reads: the same for the same groups."""
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
    """Which cluster each metric of the legacy layout was last sent for.

    In that layout groups of one name in two clusters write one metric. Not for several threads.
    """

    def __init__(self, bound: int = NAMES_BOUND) -> None:
        self._bound = bound
        self._clusters: OrderedDict[str, str] = OrderedDict()

    def taken_over(self, name: str, cluster: str) -> bool:
        """Note that a metric is sent for a cluster; true if it was another's before: its value is lost."""
        before = self._clusters.get(name)
        self._clusters[name] = cluster
        self._clusters.move_to_end(name)
        if len(self._clusters) > self._bound:
            self._clusters.popitem(last=False)
        return before is not None and before != cluster


def _silent(heard: OrderedDict[K, int], quarter: int) -> Iterator[K]:
    """The groups that were silent for a day, the longest first."""
    return takewhile(lambda key: quarter - heard[key] > _SILENT_QUARTERS, heard)


def _read(dump: bytes) -> dict[str, dict[str, int]]:
    try:
        return msgspec.json.decode(dump, type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"what is kept of the groups inside the cap cannot be read: {error}") from error
