"""How lag grows and where it is: the tables ``rates_minute`` and ``skew_minute``, from listings of all partitions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from support.pipeline.expected_tables.archive_lines import Event
from support.pipeline.expected_tables.calendar_ms import MINUTE_MS, day_text, minute_of

Rows = list[dict[str, Any]]


_MOST_PER_SECOND = 1_000_000_000
"""No partition has more messages per second, so such a difference of offsets is an error."""

_NEARLY_ALL = 0.8
"""If the worst partition has this share of its owner's lag, the owner keeps up with its other partitions."""


class Listing(NamedTuple):
    """The state of a partition of a group at a time. ``of`` is the number of partitions of the topic."""

    cluster: str
    consumer: str
    topic: str
    partition: int
    at_ms: int
    committed: int | None
    lag: int | None
    owner: str | None


def listings_of(events: Iterable[Event]) -> list[Listing]:
    """Return the partitions of the events that list all partitions of their group. A webhook lists only bad ones."""
    return [
        Listing(*event.group, one.topic, one.partition, event.received_ms, one.committed, one.lag, one.owner)
        for event in sorted(events, key=lambda event: event.arrival)
        if event.lists_all
        for one in event.partitions
        if one.status != "LEFT"
    ]


# --- rates_minute ---


class _Share(NamedTuple):
    """What happened between two samples within one minute. ``lag`` is the lag of the later sample."""

    covered_ms: int
    produced: float
    consumed: float
    lag: int


def rates_minute(listings: Iterable[Listing], longest_ms: int) -> Rows:
    """Make a row for each partition and minute with time between two samples.

    Between two samples, the log and the commit grow evenly.
    """
    partitions = defaultdict[tuple[str, str, str, int], list[Listing]](list)
    for one in listings:
        if one.committed is not None and one.lag is not None and one.committed + one.lag < 2**63:
            partitions[one[:4]].append(one)
    rows = []
    for place, samples in partitions.items():
        minutes = defaultdict[int, list[_Share]](list)
        for before, after in pairwise(sorted(samples, key=lambda one: one.at_ms)):
            for minute, share in _between(before, after, longest_ms):
                minutes[minute].append(share)
        cluster, consumer, topic, partition = place
        named = {"cluster": cluster, "consumer": consumer, "topic": topic, "partition": partition}
        for minute, shares in minutes.items():
            rows.append({**named, "minute": minute, "day": day_text(minute), **_rate_columns(shares)})
    return rows


def _between(before: Listing, after: Listing, longest_ms: int) -> Iterator[tuple[int, _Share]]:
    took_ms = after.at_ms - before.at_ms
    if before.committed is None or before.lag is None or after.committed is None or after.lag is None:
        return
    consumed = after.committed - before.committed
    produced = after.committed + after.lag - before.committed - before.lag
    if not 0 < took_ms <= longest_ms or consumed < 0 or produced < 0:
        return
    if max(consumed, produced) > _MOST_PER_SECOND * took_ms / 1000:
        return
    for minute in range(minute_of(before.at_ms), after.at_ms, MINUTE_MS):
        part_ms = min(after.at_ms, minute + MINUTE_MS) - max(before.at_ms, minute)
        yield minute, _Share(part_ms, produced * part_ms / took_ms, consumed * part_ms / took_ms, after.lag)


def _rate_columns(shares: list[_Share]) -> dict[str, Any]:
    covered_ms = sum(share.covered_ms for share in shares)
    produced, consumed = sum(share.produced for share in shares), sum(share.consumed for share in shares)
    gain, lag = (consumed - produced) / covered_ms * 1000, shares[-1].lag
    return {
        "produced": produced,
        "consumed": consumed,
        "produce_rate": produced / covered_ms * 1000,
        "consume_rate": consumed / covered_ms * 1000,
        "catch_up_seconds": 0.0 if lag == 0 else lag / gain if gain > 0 else None,
        "coverage": covered_ms / MINUTE_MS,
    }


# --- skew_minute ---


def skew_minute(listings: Iterable[Listing], sizes: Mapping[tuple[str, str, str, str], int] | None = None) -> Rows:
    """Make a row for each topic of a group and each minute in which the lag of all its partitions is known.

    ``sizes`` has the number of partitions by cluster, group, day and topic. With it, the lag of one partition suffices.
    """
    topics = defaultdict[tuple[str, str, str, int], dict[int, list[Listing]]](lambda: defaultdict(list))
    for one in listings:
        topics[*one[:3], minute_of(one.at_ms)][one.partition].append(one)
    rows = []
    for place, partitions in topics.items():
        lags, owners = dict[int, float](), dict[int, str | None]()
        for partition, seen in partitions.items():
            told = [one.lag for one in seen if one.lag is not None]
            owners[partition] = seen[-1].owner
            if told:
                lags[partition] = sum(told) / len(told)
        cluster, consumer, topic, minute = place
        size = len(partitions) if sizes is None else sizes[cluster, consumer, day_text(minute), topic]
        if lags and (sizes is not None or len(lags) == size):
            named = {"cluster": cluster, "consumer": consumer, "topic": topic, "minute": minute}
            known = {"day": day_text(minute), "coverage": len(lags) / size}
            rows.append({**named, **known, **_skew_columns(lags, owners)})
    return rows


def _skew_columns(lags: dict[int, float], owners: dict[int, str | None]) -> dict[str, Any]:
    total = sum(lags.values())
    worst = max(lags, key=lambda partition: (lags[partition], partition)) if total else None
    row: dict[str, Any] = dict.fromkeys(("max_share", "worst_partition", "owner", "owner_share", "cause"))
    if worst is not None:
        owner = owners[worst]
        row["max_share"], row["worst_partition"], row["owner"] = lags[worst] / total, worst, owner
        of_owner = {
            partition: lag for partition, lag in lags.items() if owner is not None and owners[partition] == owner
        }
        row["owner_share"] = sum(of_owner.values()) / total if owner is not None else None
        others = [lag for partition, lag in of_owner.items() if partition != worst]
        if others and row["max_share"] > 2 / len(lags):
            is_nearly_all = lags[worst] >= _NEARLY_ALL * sum(of_owner.values())
            row["cause"] = "hot_partition" if is_nearly_all else "slow_owner"
    return {**row, "gini": _gini(sorted(lags.values()))}


def _gini(ordered: list[float]) -> float:
    total, count = sum(ordered), len(ordered)
    if not total:
        return 0.0
    return 2 * sum(rank * lag for rank, lag in enumerate(ordered, 1)) / (count * total) - (count + 1) / count
