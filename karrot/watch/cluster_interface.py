"""Defines what `watch` asks of a Kafka cluster and the values that it gets back, and connects to a cluster."""
# ruff: noqa: PLC0415 (confluent-kafka is an extra: only those who watch need it)

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from karrot.event import TopicPartition
from karrot.kafka.client_properties import PropertiesError, complete, read, without_values

if TYPE_CHECKING:
    from karrot.watch.kafka_admin import KafkaCluster

_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class ClusterError(Exception):
    """Kafka did not answer a question on which everything else depends; the message says why."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Failure(NamedTuple):
    """Why one group or partition could not be read. ``reason`` is Kafka's name of the error, in lower case."""

    reason: str
    text: str


class GroupMember(NamedTuple):
    """One member of a group and what is assigned to it. ``host`` is as the broker sees it: ``/10.1.2.3``."""

    id: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """A group as its coordinator describes it.

    ``state`` is one of `karrot.eventlog.watched_groups.STATES`; ``coordinator`` is the broker. ``members`` is
    ``None`` where they are not known.
    """

    state: str
    members: tuple[GroupMember, ...] | None = ()
    coordinator: int | None = None

    @property
    def has_members(self) -> bool:
        """Whether the group may have a consumer; its state says so where the members are not known."""
        return bool(self.members) or self.state not in _WITHOUT_MEMBERS


class Listing(NamedTuple):
    """The groups and their states; not complete if some broker did not say which groups it coordinates."""

    groups: Mapping[str, str]
    is_complete: bool


class Cluster(Protocol):
    """A Kafka cluster.

    A question about many things answers for each of them, with a `Failure` where there is no answer. Every method may
    raise `ClusterError` instead.
    """

    def groups(self) -> Listing:
        """Every consumer group."""

    def describe(self, groups: Collection[str]) -> Mapping[str, Description | Failure]:
        """State and members of groups. One that does not exist is described as Dead."""

    def committed(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, int] | Failure]:
        """The committed offsets of groups."""

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The log end offset (the high watermark) of partitions."""

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """The offset of the oldest message that each partition still has."""

    def close(self) -> None:
        """Let go of the client."""


class NotConnected(ValueError):  # noqa: N818 (names what is so, not a failure of ours)
    """No client can be made of what was given; the message is a sentence without secrets."""


def connect(
    bootstrap: Sequence[str], properties: Path | None = None, *, client_id: str = "karrot-watch"
) -> "KafkaCluster":
    """A client of the cluster at these addresses. Nothing is sent yet. Raises `NotConnected`."""
    try:
        from confluent_kafka import KafkaException

        from karrot.watch.kafka_admin import KafkaCluster
    except ImportError as error:
        raise NotConnected("watching Kafka needs confluent-kafka: pip install 'karrot-burrow[kafka]'") from error
    try:
        given = {} if properties is None else read(properties)
        return KafkaCluster(complete({"client.id": client_id, **given}, bootstrap))
    except PropertiesError as error:
        raise NotConnected(str(error)) from error
    except KafkaException as error:
        said = without_values(error.args[0].str(), given)
        raise NotConnected(f"{properties}: {said}") from error  # only properties can be wrong: addresses are not tried
    except (ValueError, TypeError) as error:  # TypeError: a callback's name with a text for it
        raise NotConnected(without_values(str(error), given)) from error
