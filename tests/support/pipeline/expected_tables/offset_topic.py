"""Decodes records of ``__consumer_offsets`` by Kafka's message definitions.

Only commits and the metadata of classic groups are decoded. Other records are ignored.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import calcsize, unpack_from
from typing import Any

_COMMIT_KEYS = 0, 1
_GROUP_KEY = 2
_FIRST_FLEXIBLE_COMMIT = 4
_FIRST_FLEXIBLE_GROUP = 4


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as the broker gives it."""

    partition: int
    offset: int
    at_ms: int
    key: bytes
    value: bytes | None


class _Bytes:
    """Reads one field after the other. In flexible versions, lengths are variable numbers, one too large."""

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self.data, self.at, self.flexible = data, 0, flexible

    def number(self, kind: str) -> int:
        (found,) = unpack_from(f">{kind}", self.data, self.at)
        self.at += calcsize(f">{kind}")
        return int(found)

    def varint(self) -> int:
        found = shift = 0
        while (byte := self.number("B")) & 0x80:
            found, shift = found | (byte & 0x7F) << shift, shift + 7
        return found | byte << shift

    def length(self, kind: str) -> int:
        return self.varint() - 1 if self.flexible else self.number(kind)

    def octets(self) -> bytes:
        return self._taken(self.length("i")) or b""

    def text(self) -> str | None:
        taken = self._taken(self.length("h"))
        return None if taken is None else taken.decode(errors="replace")

    def tags(self) -> None:
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self._taken(self.varint())

    def _taken(self, length: int) -> bytes | None:
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def commit_rows(records: Iterable[RawRecord], cluster: str) -> list[dict[str, Any]]:
    """Make the rows of the table ``commits`` that the definitions in this package need."""
    rows = []
    for record in records:
        key = _Bytes(record.key)
        if key.number("h") in _COMMIT_KEYS:
            row = {"cluster": cluster, "consumer": key.text(), "topic": key.text(), "partition": key.number("i")}
            rows.append(row | _place(record) | _commit(record.value))
    return rows


def _commit(value: bytes | None) -> dict[str, Any]:
    if value is None:
        names = "version", "offset", "metadata", "leader_epoch", "commit_ts_ms", "expire_ts_ms"
        return {"tombstone": True, **dict.fromkeys(names)}
    read = _Bytes(value)
    version, offset = read.number("h"), read.number("q")
    epoch = read.number("i") if version >= 3 else None
    read.flexible = version >= _FIRST_FLEXIBLE_COMMIT
    metadata, commit_ts = read.text(), read.number("q")
    return {
        "tombstone": False,
        "version": version,
        "offset": offset,
        "metadata": metadata,
        "leader_epoch": None if epoch == -1 else epoch,
        "commit_ts_ms": commit_ts,
        "expire_ts_ms": read.number("q") if version == 1 else None,
    }


def member_rows(records: Iterable[RawRecord], cluster: str) -> list[dict[str, Any]]:
    """Make the rows of the table ``members`` that the definitions in this package need."""
    rows = []
    for record in records:
        key = _Bytes(record.key)
        if key.number("h") == _GROUP_KEY:
            row = {"cluster": cluster, "consumer": key.text(), **_place(record)}
            rows += [row | member for member in _members(record.value)]
    return rows


def _members(value: bytes | None) -> Iterator[dict[str, Any]]:
    if value is None:
        yield {"generation": None}
        return
    read = _Bytes(value)
    version = read.number("h")
    read.flexible = version >= _FIRST_FLEXIBLE_GROUP
    protocol_type, generation = read.text(), read.number("i")
    state = {"protocol_type": protocol_type, "generation": generation, "protocol": read.text(), "leader": read.text()}
    if version >= 2:
        read.number("q")
    count = read.length("i")
    for _ in range(count):
        member = {"member_id": read.text(), "instance_id": read.text() if version >= 3 else None}
        member |= {"client_id": read.text(), "client_host": read.text()}
        if version >= 1:
            read.number("i")
        read.number("i")
        read.octets()
        places = [{"topic": topic, "partition": partition} for topic, partition in _assigned(read.octets())]
        read.tags()
        yield from (state | member | place for place in places or [{}])
    if not count:
        yield state


def _assigned(data: bytes) -> Iterator[tuple[str, int]]:
    if data:
        read = _Bytes(data)
        read.number("h")
        for _ in range(read.number("i")):
            topic = read.text() or ""
            for _ in range(read.number("i")):
                yield topic, read.number("i")


def _place(record: RawRecord) -> dict[str, int]:
    return {"log_partition": record.partition, "log_offset": record.offset, "log_ts_ms": record.at_ms}
