"""Defines the interface `Cluster`, through which ``watch`` reads Kafka, and connects to a cluster."""
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
NOBODY = ("", "")
"""The host and client id of a partition without an owner."""

_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class ClusterError(Exception):
    """Kafka did not answer a request that the whole poll needs. The message explains the failure."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Failure(NamedTuple):
    """The reason why one group or partition could not be read. ``reason`` is Kafka's error name in lower case."""

    reason: str
    text: str


class GroupMember(NamedTuple):
    """A member of a group. ``host`` is the address that the broker sees. Only ``instance_id`` survives a restart."""

    id: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A coordinator's description of a group.

    ``state`` is one of `karrot.eventlog.watch_data_of_groups.STATES`. ``coordinator`` is the id of the coordinating
    broker. ``members`` is ``None`` if the members are not known.
    """

    state: str
    members: tuple[GroupMember, ...] | None = ()
    coordinator: int | None = None

    @property
    def topics(self) -> set[str]:
        """The topics that the members of a stable group read. Each of their partitions has or gets an owner."""
        return {place.topic for place in self.assigned} if self.state == "Stable" else set()

    @property
    def owners(self) -> dict[TopicPartition, tuple[str, str]]:
        """The host and client id of the member that owns each partition. Empty if the members are not known."""
        return {at: (member.host, member.client_id) for member in self.members or () for at in member.assigned}

    @property
    def assigned(self) -> set[TopicPartition]:
        return {place for member in self.members or () for place in member.assigned}

    def owned(self, places: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """The partitions in ``places`` that a member may own. If the members are unknown, the group's state decides."""
        if self.members is None:
            return () if self.state in _WITHOUT_MEMBERS else places
        return self.assigned.intersection(places)


class Listing(NamedTuple):
    """The consumer groups with their states. ``others`` are groups of other kinds, such as share groups.

    ``is_complete`` is false if a broker is unreachable.
    """

    groups: Mapping[str, str]
    is_complete: bool
    others: frozenset[str] = frozenset()


class Cluster(Protocol):
    """A Kafka cluster.

    A method for many groups or partitions returns one result for each group or partition. Without an answer, the result
    is a `Failure`. Every method can raise `ClusterError`.
    """

    def groups(self) -> Listing:
        """List all consumer groups."""

    def describe(self, groups: Collection[str]) -> Mapping[str, Description | Failure]:
        """Return the state and the members of groups. A group that does not exist has the state Dead."""

    def committed(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, int] | Failure]:
        """Return the committed offsets of groups."""

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """Return the log end offset (the high watermark) of each partition."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """Return the offset of the oldest message that each partition still has."""

    def first_unread(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FirstUnread | Failure]:
        """Read each partition's first record from an offset on, without key and value. Needs the ACL ``Read``."""

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each existing topic in ``topics``."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return Kafka's ids of topics. A recreated topic has another id. Unknown ids are left out."""

    def close(self) -> None:
        """Release the client."""


class NotConnected(ValueError):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """No client can be created with these addresses and properties. The message contains no secrets.

    Any other ``reason`` than `PROPERTIES` comes from AWS, which gave no token for Amazon MSK. A retry can succeed.
    """

    def __init__(self, text: str, reason: str = PROPERTIES) -> None:
        super().__init__(text)
        self.reason = reason


def connect(
    bootstrap: Sequence[str], properties: Path | Secret | None = None, *, client_id: str = "karrot-watch"
) -> "KafkaCluster":
    """Create a client of a cluster, without a request. Raises `NotConnected`.

    An error in the client's C code can abort the process, so a service calls this function through
    `karrot.watch.client_process`. ``properties`` has client properties, as a file or inline.
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
        raise NotConnected(f"{source}: {text}") from error  # no address was tried, so the properties are wrong
    except (ValueError, TypeError) as error:  # TypeError: a string as the value of a callback property
        raise NotConnected(without_values(str(error), given)) from error
