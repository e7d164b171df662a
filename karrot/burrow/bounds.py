"""Bounds the texts and lists of an event, because others choose them. `BOUNDS` has every bound.

An event beyond a bound is refused when it arrives. A stored event is not checked again, so Karrot still reads what an
older version has stored.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from karrot.burrow.wire import wrong
from karrot.event import LagEvent, PartitionLag


class Bound(NamedTuple):
    """The most bytes of a text in UTF-8, or the most ``entries`` of a list. ``path`` is the field in a posted body."""

    path: str
    most: int
    reason: str
    unit: str = "bytes"

    def require(self, size: int) -> None:
        """Raise `MalformedPayload` if a text or list of this size is beyond the bound."""
        if size > self.most:
            raise wrong(self.path, f"it has {size} {self.unit}, and the limit is {self.most}")

    def require_text(self, text: str) -> None:
        """Raise `MalformedPayload` if a text is beyond the bound."""
        if len(text) * 4 > self.most:  # no character has more than 4 bytes
            self.require(len(text.encode(errors="surrogatepass")))


_PARTITION: Final = "$.Event.Result.partitions[...]"

CLUSTER: Final = Bound("$.Event.Cluster", 255, "A cluster is the name of a section in `burrow.toml`.")
GROUP: Final = Bound(
    "$.Event.Group",
    1024,
    "Kafka allows 32,767 bytes. An index of PostgreSQL holds 2,704 bytes for the cluster and the group together.",
)
STATUS: Final = Bound("$.Event.Result.status", 64, "The longest status of Burrow is `NOTFOUND`.")
INCIDENT_ID: Final = Bound("$.Event.ID", 255, "Burrow's ids have 36 bytes.")
EXTRAS: Final = Bound(
    "$.Event.Extras", 64, "Extras are lines of the notifier's section in `burrow.toml`.", unit="entries"
)
EXTRA_KEY: Final = Bound("$.Event.Extras[key]", 255, EXTRAS.reason)
EXTRA_VALUE: Final = Bound("$.Event.Extras[...]", 4096, EXTRAS.reason)
PARTITIONS: Final = Bound(
    "$.Event.Result.partitions",
    100_000,
    "A body of 8 MiB, the default of `KARROT_MAX_BODY`, has room for about 20,000 of Burrow's partitions.",
    unit="entries",
)
TOPIC: Final = Bound(f"{_PARTITION}.topic", 249, "Kafka allows no longer name.")
PARTITION_STATUS: Final = Bound(f"{_PARTITION}.status", 64, "The longest status of Burrow is `REWIND`.")
OWNER: Final = Bound(f"{_PARTITION}.owner", 1024, "The owner is the host of a consumer.")
CLIENT_ID: Final = Bound(f"{_PARTITION}.client_id", 1024, "Kafka allows 32,767 bytes. Real client ids have up to 200.")

_OF_PARTITION: Final[tuple[tuple[Bound, Callable[[PartitionLag], str]], ...]] = (
    (TOPIC, attrgetter("topic")),
    (PARTITION_STATUS, attrgetter("status_text")),
    (OWNER, attrgetter("owner")),
    (CLIENT_ID, attrgetter("client_id")),
)

BOUNDS: Final = (
    *(CLUSTER, GROUP, STATUS, INCIDENT_ID, EXTRAS, EXTRA_KEY, EXTRA_VALUE, PARTITIONS),
    *(bound for bound, _ in _OF_PARTITION),
)
"""Every bound. ``Result.maxlag`` has the bounds of a partition."""


def require_within(event: LagEvent) -> None:
    """Raise `MalformedPayload` if an event is beyond a bound."""
    CLUSTER.require_text(event.cluster)
    GROUP.require_text(event.consumer)
    STATUS.require_text(event.status_text)
    INCIDENT_ID.require_text(event.incident_id or "")
    EXTRAS.require(len(event.extras))
    for key, value in event.extras:
        EXTRA_KEY.require_text(key)
        EXTRA_VALUE.require_text(value)
    PARTITIONS.require(len(event.partitions))
    listed = event.partitions if event.max_lag is None else (*event.partitions, event.max_lag)
    for bound, text_of in _OF_PARTITION:
        for text in set(map(text_of, listed)):  # the partitions of a large event have few different texts
            bound.require_text(text)
