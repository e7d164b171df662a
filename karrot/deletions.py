"""Decides which groups are deleted because lists of groups lack them: the rule of `karrot.resync` and `karrot.watch`.

``karrot pipeline evaluate`` reads no lists: ``__consumer_offsets`` has a record of each deletion.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MISSING_MS = 60_000


@dataclass(slots=True)
class MissingGroups:
    """Groups that a cluster's lists lack, each with the time of its last verdict and of the first list without it.

    A group is deleted if two complete lists that are at least a minute apart lack it, and so do the lists between them,
    and no source has judged it since. A shorter time is no sign of a deletion: a broker that has just become
    coordinator lists no groups yet, and Burrow lists few groups after a restart.
    """

    _missing: dict[str, tuple[int, int]] = field(default_factory=dict)

    def see(
        self, listed: Collection[str], known: Mapping[str, int], now_ms: int, *, is_complete: bool = True
    ) -> list[str]:
        """The deleted groups, once a minute each. An incomplete list shows no group as missing or deleted.

        ``known`` has the groups that are not deleted yet, and the time of the last verdict on each. ``now_ms`` is the
        boot clock's.
        """
        found: list[str] = []
        before, self._missing = self._missing, {}
        for group in [group for group in known if group not in listed]:
            judged_ms, since_ms = before.get(group, (None, 0))
            if judged_ms == known[group]:
                is_deleted = is_complete and now_ms - since_ms >= MISSING_MS
                found += [group] * is_deleted
                self._missing[group] = known[group], now_ms if is_deleted else since_ms
            elif is_complete:
                self._missing[group] = known[group], now_ms
        return found
