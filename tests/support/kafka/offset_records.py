"""Encodes records of ``__consumer_offsets`` like a broker, by Kafka's message definitions."""

from collections.abc import Mapping, Sequence
from struct import pack
from typing import NamedTuple


def string(text: str | bytes | None) -> bytes:
    """Encode a string: ``int16`` length and bytes; -1 for null."""
    if text is None:
        return pack(">h", -1)
    raw = text.encode() if isinstance(text, str) else text
    return pack(">h", len(raw)) + raw


def varint(number: int) -> bytes:
    """Encode an unsigned number: seven bits per byte, the lowest first; the high bit means that more bytes follow."""
    told = b""
    while number > 0x7F:
        told += bytes([number & 0x7F | 0x80])
        number >>= 7
    return told + bytes([number])


def compact(text: str | bytes | None) -> bytes:
    """Encode a compact string or bytes: a varint of the length + 1 and the bytes; 0 for null."""
    if text is None:
        return varint(0)
    raw = text.encode() if isinstance(text, str) else text
    return varint(len(raw) + 1) + raw


def tags(fields: Mapping[int, bytes] | None = None) -> bytes:
    """Encode tagged fields: their number, and for each its tag, its size and its bytes."""
    each = sorted((fields or {}).items())
    return varint(len(each)) + b"".join(varint(tag) + varint(len(raw)) + raw for tag, raw in each)


def commit_key(group: str | bytes | None, topic: str | bytes | None, partition: int, *, version: int = 1) -> bytes:
    return pack(">h", version) + string(group) + string(topic) + pack(">i", partition)


def commit_value(
    version: int,
    offset: int,
    *,
    metadata: str | bytes | None = "",
    commit_ts: int = 1_746_950_400_000,
    epoch: int = -1,
    expire_ts: int = -1,
    tagged: Mapping[int, bytes] | None = None,
) -> bytes:
    head = pack(">hq", version, offset) + (pack(">i", epoch) if version >= 3 else b"")
    text = compact(metadata) if version >= 4 else string(metadata)
    tail = pack(">q", expire_ts) if version == 1 else tags(tagged) if version >= 4 else b""
    return head + text + pack(">q", commit_ts) + tail


def group_key(group: str | bytes | None) -> bytes:
    return pack(">h", 2) + string(group)


def other_key(key_type: int, group: str, *more: str) -> bytes:
    """Encode a key of a new protocol: KIP-848's (3 to 8, 16), share groups' (9 to 15), streams groups' (from 17)."""
    return pack(">h", key_type) + b"".join(string(text) for text in (group, *more))


def assignment(partitions: Mapping[str, Sequence[int]], *, version: int = 0, user_data: bytes | None = None) -> bytes:
    """Encode a member's assignment by the leader, in the consumers' own protocol; never compact."""
    told = pack(">hi", version, len(partitions))
    for topic, numbers in partitions.items():
        told += string(topic) + pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return told + (pack(">i", -1) if user_data is None else pack(">i", len(user_data)) + user_data)


class Member(NamedTuple):
    """A member of a classic group; ``assigned`` is the result of `assignment`."""

    member_id: str | None = "m-1"
    client_id: str | None = "client"
    client_host: str | None = "/10.1.2.3"
    instance_id: str | None = None
    assigned: bytes | None = b""
    subscription: bytes | None = b""

    def encoded(self, version: int) -> bytes:
        flexible = version >= 4
        text = compact if flexible else string
        ids = [self.member_id, *([self.instance_id] if version >= 3 else []), self.client_id, self.client_host]
        timeouts = pack(">ii", 300_000, 45_000) if version >= 1 else pack(">i", 45_000)
        blobs = b"".join(compact(raw) if flexible else _blob(raw) for raw in (self.subscription, self.assigned))
        return b"".join(text(one) for one in ids) + timeouts + blobs + (tags() if flexible else b"")


def group_value(
    version: int,
    members: Sequence[Member] = (),
    *,
    protocol_type: str = "consumer",
    generation: int = 1,
    protocol: str | None = "range",
    leader: str | None = "m-1",
    tagged: Mapping[int, bytes] | None = None,
) -> bytes:
    flexible = version >= 4
    text = compact if flexible else string
    head = pack(">h", version) + text(protocol_type) + pack(">i", generation) + text(protocol) + text(leader)
    since = pack(">q", 1_746_950_400_000) if version >= 2 else b""
    count = varint(len(members) + 1) if flexible else pack(">i", len(members))
    told = b"".join(member.encoded(version) for member in members)
    return head + since + count + told + (tags(tagged) if flexible else b"")


def _blob(raw: bytes | None) -> bytes:
    return pack(">i", -1) if raw is None else pack(">i", len(raw)) + raw
