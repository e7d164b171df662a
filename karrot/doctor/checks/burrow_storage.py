"""Checks what Burrow reads and stores, which decides whether its verdicts are right."""

import re
from collections.abc import Iterator

from karrot.burrow.client import ClusterModule, ConsumerModule, StorageModule
from karrot.doctor.checks import Check, Problem, check, fault, note, only_if, warn
from karrot.doctor.read_burrow import BurrowSeen
from karrot.event import LagEvent, Status, has_burrow_name
from karrot.text import some

_WRONG = "burrow.md#when-something-is-wrong"
_DOCTOR = "burrow.md#karrot-doctor"
_OLDEST_KAFKA = (0, 11)
_EVERYTHING = ("", ".*", "^.*$", ".+")
_SLOW_REFRESH_S, _SLOW_TOPICS_S = 60, 300
_SHORTEST_MEMORY_S = 3600
_FEWEST_INTERVALS = 5
_BEHIND = 10_000


@check(success="Burrow has started all its parts", where=_WRONG)
def ready(seen: BurrowSeen) -> Iterator[Problem]:
    """Burrow is still starting."""
    only_if(seen.ready is not None)
    if not seen.ready:
        yield warn("Burrow is still starting (/burrow/admin/ready says 503)", "wait; if this lasts, read Burrow's log")


@check(success="ZooKeeper is configured", where=_WRONG)
def zookeeper(seen: BurrowSeen) -> Iterator[Problem]:
    """A notifier has no ZooKeeper. Burrow needs a lock in ZooKeeper to send, even if Kafka needs no ZooKeeper."""
    only_if(seen.notifiers and seen.zookeeper is not None)
    if seen.zookeeper is not None and not seen.zookeeper.servers:
        yield fault("Burrow has notifiers but no ZooKeeper: it sends nothing", '[zookeeper] servers = ["HOST:2181"]')


@check(success="Burrow lists topics and groups of every cluster", where=_WRONG)
def lists(seen: BurrowSeen) -> Iterator[Problem]:
    """Burrow lists no cluster, or no topics or no groups of a cluster."""
    only_if(seen.ready is not False)  # a Burrow that is starting lists nothing; the check `ready` reports the start
    if not seen.listed:
        yield fault("Burrow lists no cluster", 'add a section [cluster.NAME] with class-name = "kafka" and servers')
    for cluster in seen.listed:
        if seen.topics.get(cluster) == 0:
            yield fault(
                f"Burrow lists no topic of {cluster}: it does not read the brokers, or has just started",
                f"check servers and client-profile of [cluster.{cluster}]; Burrow's log has the error",
            )
        elif cluster in seen.groups and not seen.groups[cluster]:
            yield fault(
                f"Burrow lists no group of {cluster}",
                f'check the [consumer.NAME] with cluster = "{cluster}": its group-allowlist and its kafka-version',
            )


@check(success="every cluster has a consumer section with the right name", where=_WRONG)
def cluster_names(seen: BurrowSeen) -> Iterator[Problem]:
    """A cluster's name has a space, or is in upper case in a consumer section. So Burrow stores no commits."""
    only_if(seen.clusters and seen.has_read("cluster", "consumer"))
    for name, each in seen.consumers.items():
        if each.cluster in seen.clusters:
            continue
        if (lower := each.cluster.lower()) in seen.clusters:
            yield fault(
                f"[consumer.{name}] names {each.cluster}, but its name is {lower}: Burrow stores no commits",
                f'[consumer.{name}] cluster = "{lower}"',
            )
        else:
            yield fault(
                f"[consumer.{name}] names {each.cluster!r}, which is no cluster of Burrow",
                f"[consumer.{name}] cluster must be one of {', '.join(seen.clusters) or 'the [cluster.NAME] sections'}",
            )
    for cluster in seen.clusters:
        if " " in cluster:
            yield fault(
                f"the cluster {cluster!r} has a space in its name: Burrow never evaluates it", "rename the cluster"
            )
        elif cluster not in {each.cluster.lower() for each in seen.consumers.values()}:
            yield fault(
                f"no consumer section reads the commits of {cluster}",
                f'[consumer.{cluster}] class-name = "kafka", cluster = "{cluster}"',
            )


@check(success="no kafka-version is too old for consumer groups", where=_DOCTOR)
def kafka_version(seen: BurrowSeen) -> Iterator[Problem]:
    """A kafka-version is older than 0.11. So Burrow finds no groups, and reports no error."""
    profiles = {
        each.client_profile
        for modules in (seen.clusters, seen.consumers)
        for each in modules.values()
        if each.client_profile is not None
    }
    only_if(profiles)
    for profile in sorted(profiles, key=lambda each: each.name):
        version = tuple(int(part) for part in re.findall(r"\d+", profile.kafka_version)[:2])
        if version and version < _OLDEST_KAFKA:
            yield fault(
                f"[client-profile.{profile.name}] has kafka-version {profile.kafka_version}: "
                "Burrow finds no groups and reports no error",
                f'[client-profile.{profile.name}] kafka-version = "2.8.0"',
            )


@check(success="Burrow reads commits from the beginning", where=_DOCTOR, each="consumer")
def start_latest(section: str, each: ConsumerModule, _: BurrowSeen) -> Iterator[Problem]:
    """start-latest is set. So Burrow does not know a group that has not committed since Burrow's start."""
    if each.start_latest:
        yield note(
            f"{section} starts at the latest commit: after a restart it knows no stopped group",
            f"{section} start-latest = false, or backfill-earliest = true",
        )


@check(success="Burrow reads log end offsets and topics often enough", where=_DOCTOR, each="cluster")
def refresh(section: str, each: ClusterModule, seen: BurrowSeen) -> Iterator[Problem]:
    """Burrow reads log end offsets less often than it evaluates groups, or finds new topics late."""
    if each.offset_refresh > min(_SLOW_REFRESH_S, seen.interval):
        yield warn(
            f"{section} reads log end offsets every {each.offset_refresh} s: a lag can be that old, "
            "and can be 0 between two reads",
            f"{section} offset-refresh = 10",
        )
    if each.topic_refresh > _SLOW_TOPICS_S:
        yield warn(
            f"{section} looks for new topics every {each.topic_refresh} s: commits on a new topic are lost "
            "until Burrow finds the topic",
            f"{section} topic-refresh = 60",
        )


@check(success="windows of commits span enough time", where=_DOCTOR, each="storage")
def window(section: str, each: StorageModule, seen: BurrowSeen) -> Iterator[Problem]:
    """Windows of commits are too short for a verdict, because `intervals` is too small or commits are too frequent."""
    if each.intervals < _FEWEST_INTERVALS:
        yield warn(
            f"{section} keeps {each.intervals} commits of a partition: verdicts change too often",
            f"{section} intervals = 10",
        )
    short = [event.consumer for event in seen.verdicts if _is_short(seen, event)]
    if short:
        say = warn if len(short) * 2 > len(seen.verdicts) else note
        yield say(
            f"the window of {some(short)} is shorter than one offset-refresh: the lag cannot change within it",
            f"{section} min-distance = 1, or raise intervals above {each.intervals}",
        )


@check(success="Burrow remembers groups for long enough", where=_DOCTOR, each="storage")
def expire_group(section: str, each: StorageModule, _: BurrowSeen) -> Iterator[Problem]:
    """expire-group is so short that Burrow forgets a stopped group before you can notice it."""
    if each.expire_group < _SHORTEST_MEMORY_S:
        yield warn(
            f"{section} forgets a group {each.expire_group} s after its last commit, without an event",
            f"{section} expire-group = 604800",
        )


@check("KarrotBurrowLagging", success="Burrow reports no lag of its own", where=_WRONG)
def self_lag(seen: BurrowSeen) -> Iterator[Problem]:
    """Burrow itself lags on __consumer_offsets. So every other value from Burrow is old."""
    own = [event for event in seen.verdicts if has_burrow_name(event.consumer)]
    only_if(own)
    for event in own:
        if event.status is not Status.OK or (event.total_lag or 0) > _BEHIND:
            yield fault(
                f"Burrow itself lags in {event.cluster}: {event.consumer} is {event.status_text} with "
                f"{event.total_lag} records to read, so every other lag is old",
                "give Burrow more CPU, or fewer groups with group-denylist in its consumer section",
            )


def _is_short(seen: BurrowSeen, event: LagEvent) -> bool:
    """Whether a full window is shorter than Burrow's interval between two reads of the log end offsets."""
    cluster = seen.clusters.get(event.cluster)
    spans_s = (
        (each.end.timestamp_ms - each.start.timestamp_ms) / 1000
        for each in event.partitions
        if each.start and each.end and each.complete == 1
    )
    return any(0 <= span < (cluster.offset_refresh if cluster else 10) for span in spans_s)


CHECKS = [each for each in tuple(globals().values()) if isinstance(each, Check)]
"""Every check of this module, in source order."""
