"""A group as ``kafka-consumer-groups --describe`` shows it, at any moment of the history."""

from karrot.history.answers import GroupDescription, PartitionDescription
from karrot.history.duck import Duck
from karrot.history.errors import UnclearGroup
from karrot.history.records import Commit, Ends, LookBack, Owners, Place, commits, ends, owners
from karrot.history.spans import moment_of

__all__ = ["describe"]


def describe(duck: Duck, look_back: LookBack, group: str, cluster: str | None) -> GroupDescription | None:
    """The group's partitions with their offsets, lags and owners; ``None`` if there was no such group.

    Raises `UnclearGroup` where several clusters have it and none was named.
    """
    newest = commits(duck, look_back, cluster=cluster, group=group)
    of_groups = owners(duck, look_back, cluster=cluster, group=group)
    clusters = {each.place.cluster for each in newest} | {where for where, _ in of_groups}
    if len(clusters) > 1:
        raise UnclearGroup(f"{group!r} is in {', '.join(sorted(clusters))}")
    if not clusters:
        return None
    [where] = clusters
    owned = of_groups.get((where, group))
    committed = {each.place: each for each in newest if each.offset is not None}
    places = committed.keys() | {Place(where, *each) for each in (owned.by_partition if owned else ())}
    seen = ends(duck, look_back, places)
    listed = tuple(_partition(place, committed.get(place), seen.get(place), owned) for place in sorted(places))
    lags = [each.lag for each in listed if each.lag is not None]
    return GroupDescription(
        where,
        group,
        look_back.at,
        sum(lags) if lags else None,
        len(listed) - len(lags),
        len((places | seen.keys()) - committed.keys()),
        owned and owned.members,
        listed,
    )


def _partition(place: Place, commit: Commit | None, looked: Ends | None, owned: Owners | None) -> PartitionDescription:
    owner = owned.by_partition.get(place[1:]) if owned else None
    offset, end = commit and commit.offset, looked and looked.end
    return PartitionDescription(
        place.topic,
        place.partition,
        offset,
        end,
        None if offset is None or end is None else max(0, end - offset),
        owner and owner.consumer_id,
        owner and owner.host,
        owner and owner.client_id,
        None if commit is None else moment_of(commit.log_ms),
        None if looked is None else moment_of(looked.seen_ms),
    )
