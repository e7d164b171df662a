"""Decodes records of classic groups' metadata into the table ``members``.

These records are few and hold arrays of arrays, so they are read record by record in Python. Only they go there:
commits, a hundred times as many, never leave the JVM.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructType

from karrot.pipeline.offsets.group_metadata import (
    AssignedMember,
    GroupMetadata,
    UnreadableMetadata,
    parse_key,
    parse_value,
)
from karrot.pipeline.schemas import MEMBERS, columns_of, with_day

_GROUP_METADATA: Final = b"\x00\x02"
_PARSED: Final = (
    StructType([field for field in MEMBERS.fields if field.name not in {"cluster", "log_ts", "log_ts_ms"}])
    .add("log_us", LongType())
    .add("readable", BooleanType())
    .add("reason", StringType())
    .add("key", BinaryType())
    .add("value", BinaryType())
)
_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
_ROWS: Final = pa.schema([(field.name, _ARROW[field.dataType.simpleString()]) for field in _PARSED])
_ROWS_AT_ONCE: Final = 10_000


def decode_members(records: DataFrame, cluster: str) -> DataFrame:
    """One row per member and assigned partition of each record of group metadata; all other records are left out.

    ``records`` are of the Kafka source's shape. The columns of `MEMBERS`; ``readable``, false if there is a ``reason``;
    and of a record that has one nothing else but ``key`` and ``value`` as they came: one row.
    """
    log_ts = F.timestamp_micros("log_us")
    return (
        records.where(F.substring("key", 1, 2) == F.lit(_GROUP_METADATA))
        .select("key", "value", "partition", "offset", F.unix_micros("timestamp").alias("log_us"))
        .mapInArrow(_parse, _PARSED)
        .withColumns({"cluster": F.lit(cluster), "log_ts": log_ts, "log_ts_ms": F.unix_millis(log_ts)})
        .select(*columns_of(MEMBERS), "readable", "reason", "key", "value")
    )


def members(decoded: DataFrame) -> DataFrame:
    """The table ``members`` and its day, of what `decode_members` made."""
    return decoded.where("readable").withColumn("day", F.to_date("log_ts")).select(*columns_of(with_day(MEMBERS)))


def _parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    told: list[dict[str, Any]] = []
    for batch in batches:
        for record in batch.to_pylist():
            told += _rows(record)
            if len(told) >= _ROWS_AT_ONCE:
                yield pa.RecordBatch.from_pylist(told, schema=_ROWS)
                told = []
    yield pa.RecordBatch.from_pylist(told, schema=_ROWS)


def _rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    key, value = record["key"], record["value"]
    place = {"log_partition": record["partition"], "log_offset": record["offset"], "log_us": record["log_us"]}
    try:
        group = {"consumer": parse_key(key), "readable": True}
        metadata = None if value is None else parse_value(value)
    except UnreadableMetadata as why:
        return [{**place, "readable": False, "reason": str(why), "key": key, "value": value}]
    return [{**place, **group, **said} for said in _said(metadata)]


def _said(metadata: GroupMetadata | None) -> list[dict[str, Any]]:
    """A group that is gone says nothing, one without members has no member, a member at rest no partition."""
    if metadata is None:
        return [{}]
    group = {name: getattr(metadata, name) for name in ("version", "protocol_type", "generation", "protocol", "leader")}
    if not metadata.members:
        return [group]
    return [{**group, **one} for member in metadata.members for one in _assigned(member)]


def _assigned(member: AssignedMember) -> list[dict[str, Any]]:
    names = {name: getattr(member, name) for name in ("member_id", "instance_id", "client_id", "client_host")}
    return [{**names, "topic": topic, "partition": partition} for topic, partition in member.assigned] or [names]
