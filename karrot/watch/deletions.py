"""Finds the groups that may have been deleted: those that Kafka has not listed for a minute.

One list is not enough: a broker that just took over lists nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from karrot.watch.kafka_protocol import Listing

_MISSING_MS = 60_000


@dataclass(slots=True)
class Deletions:
    """Since when each known group has been missing, by the boot clock."""

    missing_since_ms: dict[str, int] = field(default_factory=dict)

    def see(self, listing: Listing, known: Iterable[str], at_ms: int) -> list[str]:
        """The groups that no list has had for a minute: now is the time to ask for them by name, once a minute.

        An incomplete list says nothing of what it lacks.
        """
        missing = [group for group in known if group not in listing.groups]
        if not listing.is_complete:
            missing = [group for group in missing if group in self.missing_since_ms]
        since = {group: self.missing_since_ms.get(group, at_ms) for group in missing}
        due = [group for group, first in since.items() if at_ms - first >= _MISSING_MS and listing.is_complete]
        self.missing_since_ms = since | dict.fromkeys(due, at_ms)
        return due
