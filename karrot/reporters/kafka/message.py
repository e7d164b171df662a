"""Make a record of an event, and define what the brokers answer to it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from karrot.event_line import encode
from karrot.eventlog.base import StoredEvent


class Message(NamedTuple):
    """One event: its group and its line (`karrot.event_line`) without the line's end."""

    key: bytes
    value: bytes


class Written(NamedTuple):
    """Every replica in sync has it: where."""

    partition: int
    offset: int


class Failed(NamedTuple):
    """It was not taken, or it is not known whether it was. ``is_final``: it never will be, however often it is sent."""

    reason: str
    text: str
    is_final: bool = False


Outcome = Written | Failed


class NoTopic(Exception):  # noqa: N818 (names what is so, not a failure of ours)
    """No client can be made of the settings as they are now; ``reason`` is stable, the text a sentence."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class TopicWriter(Protocol):
    """Where the messages go."""

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Write them in order and wait, for some seconds, until it is known of each what became of it."""

    def close(self) -> None:
        """Release what is held, also what is still on its way."""


def message_of(stored: StoredEvent) -> Message:
    """The message of an event. The key is a JSON array: no cluster and group look like another two."""
    key = msgspec.json.encode((stored.event.cluster, stored.event.consumer))
    return Message(key, encode(stored).removesuffix(b"\n"))
