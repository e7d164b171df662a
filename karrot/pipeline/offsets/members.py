"""Parses the metadata of classic groups in ``__consumer_offsets``, and makes the table ``members`` from it.

Records of metadata are few and hold arrays of arrays, so Python parses them one by one. There are a hundred
times as many commits, so commits stay in the JVM.

Kafka's ``GroupMetadataValue.json`` defines the layout. Numbers are big-endian. Versions 0 to 3 have int16 and int32
lengths. From version 4 on, lengths are unsigned varints, and there are tagged fields. A member's assignment is a field
of bytes in the clients' own protocol (``ConsumerProtocolAssignment.json``), which has no varints.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from karrot.pipeline.schemas_and_conversions import BINARY, BOOLEAN, LONG, MEMBERS, STRING, columns_of, struct, with_day

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_GROUP_METADATA: Final = 2
_NEWEST: Final = 4
_COMPACT: Final = 4
_PARSED: Final = StructType(
    [
        *(field for field in MEMBERS.fields if field.name not in {"cluster", "log_ts", "log_ts_ms"}),
        *struct(log_us=LONG, readable=BOOLEAN, reason=STRING, key=BINARY, value=BINARY),
    ]
)
_ROWS: Final = to_arrow_schema(_PARSED)
_ROWS_AT_ONCE: Final = 10_000


class UnreadableMetadata(ValueError):  # noqa: N818 (names the state of the record)
    """The record is cut off, or Kafka does not write such a record. The message is a stable code."""


@dataclass(slots=True)
class _Reader:
    """Reads ``data`` from ``at`` on. Raises `UnreadableMetadata` with the name of a field that is missing."""

    data: bytes
    is_compact: bool = False
    at: int = 0

    def number(self, kind: Struct, name: str) -> int:
        return int(kind.unpack(self._take(kind.size, name))[0])

    def varint(self, name: str) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self._take(1, name)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 (the highest bit says that more bytes follow)
                return number
        raise UnreadableMetadata("long_varint")

    def text(self, name: str) -> str | None:
        raw = self._sized(self._length(_INT16, name), name)
        return None if raw is None else raw.decode("utf-8", "replace")

    def blob(self, name: str) -> bytes | None:
        return self._sized(self._length(_INT32, name), name)

    def count(self, name: str) -> int:
        """Read the number of elements of an array; 0 if the array is null."""
        count = self._length(_INT32, name)
        if count < -1:
            raise UnreadableMetadata("negative_length")
        return max(count, 0)

    def skip_tags(self) -> None:
        """Skip the tagged fields, which later brokers may add. Each has a tag, a size and its bytes."""
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
    """Return the group of a key of type 2. Raises `UnreadableMetadata`."""
    reader = _Reader(key)
    if reader.number(_INT16, "version") != _GROUP_METADATA:
        raise UnreadableMetadata("unknown_version")
    group = reader.text("group")
    if group is None:
        raise UnreadableMetadata("null_group")
    return group


def parse_value(value: bytes) -> dict[str, Any]:
    """Parse a value: the columns of its group, and ``members``, each with its columns and ``assigned``.

    ``protocol`` is the members' assignor, such as ``range``. ``assigned`` are topics and partitions, in the order of
    the group's leader; it is empty if the type of the group's protocol is not ``consumer``. Bytes after the known
    fields are ignored: a newer broker can add some. Raises `UnreadableMetadata`.
    """
    reader = _Reader(value)
    version = reader.number(_INT16, "version")
    if not 0 <= version <= _NEWEST:
        raise UnreadableMetadata("unknown_version")
    reader.is_compact = version >= _COMPACT
    group: dict[str, Any] = {"version": version, "protocol_type": reader.text("protocol_type")}
    group["generation"] = reader.number(_INT32, "generation")
    group |= {name: reader.text(name) for name in ("protocol", "leader")}
    if version >= 2:  # noqa: PLR2004 (the time of the group's last change of state; not used)
        reader.number(_INT64, "state_ts")
    is_consumer = group["protocol_type"] == "consumer"
    count = reader.count("members")
    members = [_member(reader, version, is_consumer=is_consumer) for _ in range(count)]
    reader.skip_tags()
    return {**group, "members": members}


def _member(reader: _Reader, version: int, *, is_consumer: bool) -> dict[str, Any]:
    names = ["member_id", "instance_id", "client_id", "client_host"]
    if version < 3:  # noqa: PLR2004 (static members, KIP-345)
        names.remove("instance_id")
    member: dict[str, Any] = {name: reader.text(name) for name in names}
    if version >= 1:
        reader.number(_INT32, "rebalance_timeout")
    reader.number(_INT32, "session_timeout")
    reader.blob("subscription")
    assignment = reader.blob("assignment")
    reader.skip_tags()
    # Other programs, such as the workers of Kafka Connect, store other bytes here.
    return {**member, "assigned": _assigned(assignment or b"") if is_consumer else []}


def _assigned(assignment: bytes) -> list[tuple[str, int]]:
    """Parse an assignment. It is empty while the leader has not assigned yet.

    Newer versions only add fields at the end, so all versions are read in the same way.
    """
    if not assignment:
        return []
    reader = _Reader(assignment)
    if reader.number(_INT16, "assignment") < 0:
        raise UnreadableMetadata("negative_version")
    assigned: list[tuple[str, int]] = []
    for _ in range(reader.count("assignment")):
        topic = reader.text("assignment")
        if topic is None:
            raise UnreadableMetadata("null_topic")
        assigned += [(topic, reader.number(_INT32, "assignment")) for _ in range(reader.count("assignment"))]
    reader.blob("assignment")
    return assigned


def members_of(decoded: DataFrame, cluster: str) -> DataFrame:
    """Make one row per member and assigned partition from the metadata of groups among rows of `decode_offsets`.

    A row has the columns of `MEMBERS` and ``readable``. A record that could not be read makes one row, with a
    ``reason``, its place, and the unchanged ``key`` and ``value``.
    """
    log_ts = F.timestamp_micros("log_us")
    return (
        decoded.where(F.col("readable") & (F.col("key_type") == _GROUP_METADATA))
        .select("key", "value", "log_partition", "log_offset", F.unix_micros("log_ts").alias("log_us"))
        .mapInArrow(_parse, _PARSED)
        .withColumns({"cluster": F.lit(cluster), "log_ts": log_ts, "log_ts_ms": F.unix_millis(log_ts)})
        .select(*columns_of(MEMBERS), "readable", "reason", "key", "value")
    )


def members(decoded: DataFrame) -> DataFrame:
    """Make the table ``members``, with its day, from the rows of `members_of`."""
    return decoded.where("readable").withColumn("day", F.to_date("log_ts")).select(*columns_of(with_day(MEMBERS)))


def _parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    for batch in batches:
        for record in batch.to_pylist():
            rows += _rows(record)
            if len(rows) >= _ROWS_AT_ONCE:
                yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)
                rows = []
    yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)


def _rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Make a row per member and assigned partition. A member without partitions, or a group without members, has one.

    A deleted group has no value.
    """
    key, value = record.pop("key"), record.pop("value")
    try:
        row = {**record, "consumer": parse_key(key), "readable": True}
        group = {} if value is None else parse_value(value)
    except UnreadableMetadata as why:
        return [{**record, "readable": False, "reason": str(why), "key": key, "value": value}]
    of_members = [
        {**row, **group, **member, "topic": topic, "partition": partition}
        for member in group.pop("members", ())
        for topic, partition in member.pop("assigned") or [(None, None)]
    ]
    return of_members or [{**row, **group}]
