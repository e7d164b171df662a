"""Bounds the texts and lists of an event, because others choose them.

An event beyond a bound is refused when it arrives. A stored event is not checked again, so Karrot still reads what an
older version has stored.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from karrot.burrow.wire import wrong
from karrot.event import LagEvent, PartitionLag


class Bound(NamedTuple):
    """The most bytes of a text in UTF-8, or the most ``entries`` of a list.

    ``path`` is the field in a posted body. ``found`` gives the texts or lists of an event that the bound is for.
    """

    path: str
    most: int
    found: Callable[[LagEvent], Iterable[Collection[object]]]
    unit: str = "bytes"


def _of_partition(field: str, most: int, text_of: Callable[[PartitionLag], str]) -> Bound:
    def found(event: LagEvent) -> set[str]:  # the partitions of a large event have few different texts
        return set(map(text_of, event.partitions if event.max_lag is None else (*event.partitions, event.max_lag)))

    return Bound(f"$.Event.Result.partitions[...].{field}", most, found)


GROUP: Final = Bound("$.Event.Group", 1024, lambda event: (event.consumer,))
BOUNDS: Final = (
    Bound("$.Event.Cluster", 255, lambda event: (event.cluster,)),
    GROUP,
    Bound("$.Event.ID", 255, lambda event: (event.incident_id or "",)),
    Bound("$.Event.Extras", 64, lambda event: (event.extras,), "entries"),
    Bound("$.Event.Extras[key]", 255, lambda event: (key for key, _ in event.extras)),
    Bound("$.Event.Extras[...]", 4096, lambda event: (value for _, value in event.extras)),
    Bound("$.Event.Result.status", 64, lambda event: (event.status_text,)),
    Bound("$.Event.Result.partitions", 100_000, lambda event: (event.partitions,), "entries"),
    _of_partition("topic", 249, lambda each: each.topic),
    _of_partition("status", 64, lambda each: each.status_text),
    _of_partition("owner", 1024, lambda each: each.owner),
    _of_partition("client_id", 1024, lambda each: each.client_id),
)
"""Every bound. ``Result.maxlag`` has the bounds of a partition. docs/reference/bounds.md says why."""


def require_within(event: LagEvent) -> None:
    """Raise `MalformedPayload` if an event is beyond a bound."""
    for path, most, found, unit in BOUNDS:
        for each in found(event):
            if len(each) * 4 > most:  # no character has more than 4 bytes
                size = len(each.encode(errors="surrogatepass") if isinstance(each, str) else each)
                if size > most:
                    raise wrong(path, f"it has {size} {unit}, and the limit is {most}")
