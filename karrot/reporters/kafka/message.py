"""Makes the Kafka message of an event, and defines the possible outcomes of sending it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from karrot.event import GroupKey
from karrot.event_json_line import encode
from karrot.eventlog.base import StoredEvent


class Message(NamedTuple):
    """One event. The key is its group. The value is its line (`karrot.event_json_line`) without the line feed."""

    key: bytes
    value: bytes


class Written(NamedTuple):
    """Every in-sync replica has the message. Kafka gave it this partition and offset."""

    partition: int
    offset: int


class Failed(NamedTuple):
    """Kafka refused the message, or the outcome is unknown. ``is_final`` says that Kafka will never accept it."""

    reason: str
    text: str
    is_final: bool = False


Outcome = Written | Failed


class NoTopic(Exception):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """The current settings or credentials do not allow a client to be created. The text is for people."""

    def __init__(self, text: str, reason: str = "properties") -> None:
        super().__init__(text)
        self.reason = reason


class TopicWriter(Protocol):
    """Writes messages to a topic."""

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Write the messages in order. Wait some seconds for the outcome of each message."""

    def close(self) -> None:
        """Release all resources, and drop messages that are still being sent."""


def message_of(stored: StoredEvent) -> Message:
    """The message of an event. The key is a JSON array, so that two different groups never have the same key."""
    key = msgspec.json.encode(GroupKey(stored.event.cluster, stored.event.consumer))
    return Message(key, encode(stored).removesuffix(b"\n"))
