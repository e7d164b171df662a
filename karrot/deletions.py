"""Decides for `karrot.resync` and `karrot.watch` which groups are deleted: groups that lists of groups lack.

``karrot pipeline offsets --judge burrow`` reads no lists: ``__consumer_offsets`` has a record of each deletion.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

MISSING_MS = 60_000


@dataclass(slots=True)
class MissingGroups:
    """Remembers the groups that a cluster's lists lack, each with the times of its last verdict and first absence.

    A group is deleted if every list of at least a minute lacks it. The first and the last list must be complete, and no
    source may have judged the group since. A shorter time does not show a deletion: a broker that has just become
    coordinator lists no groups yet, and Burrow lists few groups after a restart.
    """

    _missing: dict[str, tuple[int, int]] = field(default_factory=dict)

    def see(
        self, listed: Collection[str], known: Mapping[str, int], now_ms: int, *, is_complete: bool = True
    ) -> list[str]:
        """The deleted groups, each once a minute. An incomplete list shows no group as missing or deleted.

        ``known`` maps each group that is not deleted yet to the time of its last verdict. ``now_ms`` is the boot
        clock's.
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
