"""Parses the metadata of a classic group in ``__consumer_offsets`` byte by byte, without Spark.

The layout is that of Kafka's ``GroupMetadataValue.json``: big-endian, in version 0 to 3 with int16 and int32 lengths,
from version 4 on with unsigned varints and tagged fields. What the leader assigned to a member is in it as bytes of the
clients' own protocol (``ConsumerProtocolAssignment.json``), which has no varints.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_GROUP_METADATA: Final = 2
_NEWEST: Final = 4
_COMPACT: Final = 4
_CONSUMER: Final = "consumer"


class UnreadableMetadata(ValueError):  # noqa: N818 (says what the record is)
    """The record is cut, or none that Kafka writes; the text is a stable code."""


class AssignedMember(NamedTuple):
    """``assigned`` are topics and partitions in the order of the leader; none for other protocols than consumers'."""

    member_id: str | None
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    assigned: tuple[tuple[str, int], ...] = ()


class GroupMetadata(NamedTuple):
    """A group as of one record. ``protocol`` is the assignor that was agreed on, say ``range``."""

    version: int
    protocol_type: str | None
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[AssignedMember, ...]


@dataclass(slots=True)
class _Reader:
    """Takes from ``data``, from ``at`` on. Raises `UnreadableMetadata` with the name of a field that is not there."""

    data: bytes
    is_compact: bool = False
    at: int = field(default=0)

    def number(self, kind: Struct, name: str) -> int:
        return int(kind.unpack(self._take(kind.size, name))[0])

    def varint(self, name: str) -> int:
        """Unsigned, of up to five bytes."""
        told = 0
        for shift in range(0, 35, 7):
            byte = self._take(1, name)[0]
            told |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 (the highest bit: more follow)
                return told
        raise UnreadableMetadata("long_varint")

    def text(self, name: str) -> str | None:
        raw = self._sized(self._length(_INT16, name), name)
        return None if raw is None else raw.decode("utf-8", "replace")

    def blob(self, name: str) -> bytes | None:
        return self._sized(self._length(_INT32, name), name)

    def count(self, name: str) -> int:
        """Of an array; null has none."""
        count = self._length(_INT32, name)
        if count < -1:
            raise UnreadableMetadata("negative_length")
        return max(count, 0)

    def skip_tags(self) -> None:
        """A version with compact lengths lets later brokers add fields: each has a tag, a size and its bytes."""
        if self.is_compact:
            for _ in range(self.varint("tags")):
                self.varint("tags")
                self._take(self.varint("tags"), "tags")

    def _length(self, kind: Struct, name: str) -> int:
        return self.varint(name) - 1 if self.is_compact else self.number(kind, name)

    def _sized(self, length: int, name: str) -> bytes | None:
        if length < -1:
            raise UnreadableMetadata("negative_length")
        return None if length < 0 else self._take(length, name)

    def _take(self, size: int, name: str) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise UnreadableMetadata(f"truncated_{name}")
        taken = self.data[self.at : end]
        self.at = end
        return taken


def parse_key(key: bytes) -> str:
    """The group of a key of type 2. Raises `UnreadableMetadata`."""
    reader = _Reader(key)
    if reader.number(_INT16, "version") != _GROUP_METADATA:
        raise UnreadableMetadata("unknown_version")
    group = reader.text("group")
    if group is None:
        raise UnreadableMetadata("null_group")
    return group


def parse_value(value: bytes) -> GroupMetadata:
    """Bytes after what is known are those of a newer broker, and left alone. Raises `UnreadableMetadata`."""
    reader = _Reader(value)
    version = reader.number(_INT16, "version")
    if not 0 <= version <= _NEWEST:
        raise UnreadableMetadata("unknown_version")
    reader.is_compact = version >= _COMPACT
    protocol_type = reader.text("protocol_type")
    generation = reader.number(_INT32, "generation")
    protocol, leader = reader.text("protocol"), reader.text("leader")
    if version >= 2:  # noqa: PLR2004 (when the group came into its state: not used)
        reader.number(_INT64, "state_ts")
    is_consumer = protocol_type == _CONSUMER
    members = tuple(_member(reader, version, is_consumer=is_consumer) for _ in range(reader.count("members")))
    reader.skip_tags()
    return GroupMetadata(version, protocol_type, generation, protocol, leader, members)


def _member(reader: _Reader, version: int, *, is_consumer: bool) -> AssignedMember:
    member_id = reader.text("member_id")
    instance_id = reader.text("instance_id") if version >= 3 else None  # noqa: PLR2004 (static members, KIP-345)
    client_id, client_host = reader.text("client_id"), reader.text("client_host")
    if version >= 1:
        reader.number(_INT32, "rebalance_timeout")
    reader.number(_INT32, "session_timeout")
    reader.blob("subscription")
    assignment = reader.blob("assignment")
    reader.skip_tags()
    # Connect's workers, say, put something else there.
    assigned = _assigned(assignment or b"") if is_consumer else ()
    return AssignedMember(member_id, instance_id, client_id, client_host, assigned)


def _assigned(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """No bytes: the leader has not assigned yet. A newer version only adds, so every one is read alike."""
    if not assignment:
        return ()
    reader = _Reader(assignment)
    if reader.number(_INT16, "assignment") < 0:
        raise UnreadableMetadata("negative_version")
    told: list[tuple[str, int]] = []
    for _ in range(reader.count("assignment")):
        topic = reader.text("assignment")
        if topic is None:
            raise UnreadableMetadata("null_topic")
        told += [(topic, reader.number(_INT32, "assignment")) for _ in range(reader.count("assignment"))]
    reader.blob("assignment")
    return tuple(told)
