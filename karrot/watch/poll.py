"""Polls a cluster once: reads its groups, committed offsets and log ends, and notes what could not be read."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from karrot.event import TopicPartition
from karrot.watch.kafka_protocol import Cluster, Description, Failure, Listing

_GONE = "unknown_topic_or_part"

K = TypeVar("K")
V = TypeVar("V")


class Poll(NamedTuple):
    """``gone`` are partitions that do not exist; ``failures`` say by name what could not be read."""

    listing: Listing
    described: Mapping[str, Description]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    ends: Mapping[TopicPartition, int]
    gone: frozenset[TopicPartition]
    failures: Mapping[str, Failure]


def poll_cluster(cluster: Cluster, exclude: re.Pattern[str] | None = None, only: Collection[str] = ()) -> Poll:
    """Ask for all groups but those whose name the expression matches anywhere, or ``only`` for some.

    Raises `ClusterError`.

    The log ends are asked for last: so no lag is below what it was when the offset was read.
    """
    listing = _chosen(cluster.groups(), exclude, only)
    described, no_description = _parted(cluster.describe(listing.groups))
    committed, no_offsets = _parted(cluster.committed(listing.groups))
    ends, no_ends = _parted(cluster.log_ends(_places(committed)))
    gone = frozenset(place for place, failure in no_ends.items() if failure.reason == _GONE)
    return Poll(
        listing,
        {group: described.get(group) or Description(state, None) for group, state in listing.groups.items()},
        committed,
        ends,
        gone,
        {
            **{f"group {group}": failure for group, failure in (no_description | no_offsets).items()},
            **{f"partition {at.topic}-{at.partition}": no_ends[at] for at in no_ends.keys() - gone},
        },
    )


def log_starts(cluster: Cluster, poll: Poll) -> dict[TopicPartition, int]:
    """The log starts of all that was committed; what cannot be read is left out. Raises `ClusterError`."""
    return _parted(cluster.log_starts(_places(poll.committed) - poll.gone))[0]


def _chosen(listing: Listing, exclude: re.Pattern[str] | None, only: Collection[str]) -> Listing:
    def is_chosen(name: str) -> bool:
        return (not only or name in only) and not (exclude and exclude.search(name))

    return listing._replace(groups={name: state for name, state in listing.groups.items() if is_chosen(name)})


def _places(committed: Mapping[str, Collection[TopicPartition]]) -> set[TopicPartition]:
    return {place for offsets in committed.values() for place in offsets}


def _parted(answers: Mapping[K, V | Failure]) -> tuple[dict[K, V], dict[K, Failure]]:
    answered = {key: answer for key, answer in answers.items() if not isinstance(answer, Failure)}
    return answered, {key: answer for key, answer in answers.items() if isinstance(answer, Failure)}
