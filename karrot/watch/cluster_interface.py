"""Defines the interface `Cluster` and its values, through which `watch` reads Kafka, and connects to a cluster."""
# ruff: noqa: PLC0415 (confluent-kafka is an extra: only sites that use `watch` need it)

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from karrot.event import FirstUnread, TopicPartition
from karrot.kafka.client_properties import NoToken, PropertiesError, complete, parse, read, translated, without_values
from karrot.settings.types import Secret

if TYPE_CHECKING:
    from karrot.watch.kafka_admin import KafkaCluster

PROPERTIES = "properties"
_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class ClusterError(Exception):
    """Kafka did not answer a request that the whole poll needs. The message gives the reason."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Failure(NamedTuple):
    """Why one group or partition could not be read. ``reason`` is Kafka's name for the error, in lower case."""

    reason: str
    text: str


class GroupMember(NamedTuple):
    """A member of a group. ``host`` is its address as the broker sees it. A restart keeps only an ``instance_id``."""

    id: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A group as its coordinator describes it.

    ``state`` is one of `karrot.eventlog.watch_data_of_groups.STATES`. ``coordinator`` is the id of the coordinating
    broker. ``members`` is ``None`` if the members are not known.
    """

    state: str
    members: tuple[GroupMember, ...] | None = ()
    coordinator: int | None = None

    @property
    def topics(self) -> set[str]:
        """The topics that the members of a stable group read. Their partitions all have an owner or get one."""
        return {place.topic for place in self.assigned} if self.state == "Stable" else set()

    @property
    def assigned(self) -> set[TopicPartition]:
        """The partitions that members own. Empty if the members are not known."""
        return {place for member in self.members or () for place in member.assigned}

    def owned(self, places: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """The partitions in ``places`` that a member may own. Without known members, the group's state decides."""
        if self.members is None:
            return () if self.state in _WITHOUT_MEMBERS else places
        return self.assigned.intersection(places)


class Listing(NamedTuple):
    """The consumer groups, their states, and known groups of other kinds. Incomplete if a broker is unreachable."""

    groups: Mapping[str, str]
    is_complete: bool
    others: frozenset[str] = frozenset()


class Cluster(Protocol):
    """A Kafka cluster.

    A method for many groups or partitions returns one result for each of them. Without an answer, this result is a
    `Failure`. Every method can raise `ClusterError`.
    """

    def groups(self) -> Listing:
        """Every consumer group."""

    def describe(self, groups: Collection[str]) -> Mapping[str, Description | Failure]:
        """State and members of groups. The state of a group that does not exist is Dead."""

    def committed(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, int] | Failure]:
        """The committed offsets of groups."""

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The log end offset (the high watermark) of partitions."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The offset of the oldest message that each partition still has."""

    def first_unread(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FirstUnread | Failure]:
        """The first record of each partition at or after an offset, without key and value. Needs the ACL ``Read``."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """The number of partitions of each of these topics that exists."""

    def close(self) -> None:
        """Release the client."""


class NotConnected(ValueError):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """No client can be created with these addresses and properties. The message does not contain secrets.

    Any other ``reason`` than `PROPERTIES` is AWS's: it gives no token for Amazon MSK now, and may give one later.
    """

    def __init__(self, text: str, reason: str = PROPERTIES) -> None:
        super().__init__(text)
        self.reason = reason


def connect(
    bootstrap: Sequence[str], properties: Path | Secret | None = None, *, client_id: str = "karrot-watch"
) -> "KafkaCluster":
    """Create a client of the cluster at these addresses. The client sends nothing yet. Raises `NotConnected`.

    A problem in the client's C code can abort the process, so a process that must live on uses this function through
    `karrot.watch.client_process`. ``properties`` is a file with client properties, or the properties themselves.
    """
    try:
        from confluent_kafka import KafkaException

        from karrot.watch.kafka_admin import KafkaCluster
    except ImportError as error:
        raise NotConnected("watching Kafka needs confluent-kafka: pip install 'karrot-burrow[kafka]'") from error
    try:
        match properties:
            case None:
                given = {}
            case Path():
                given = read(properties)
            case _:
                given = translated(parse(properties.reveal()))
        return KafkaCluster(complete({"client.id": client_id, **given}, bootstrap))
    except NoToken as error:
        raise NotConnected(str(error), error.reason) from error
    except PropertiesError as error:
        raise NotConnected(str(error)) from error
    except KafkaException as error:
        text = without_values(error.args[0].str(), given)
        source = properties if isinstance(properties, Path) else "the client properties"
        raise NotConnected(f"{source}: {text}") from error  # the properties are wrong: no address was tried yet
    except (ValueError, TypeError) as error:  # TypeError: a string as the value of a callback property
        raise NotConnected(without_values(str(error), given)) from error
