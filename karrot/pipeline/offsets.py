"""Records of ``__consumer_offsets``, read: the table ``commits``, and a word on every record that is none of it.

A record begins with a big-endian int16, in the key its type and in the value its version; the fields follow as in
Kafka's ``group-coordinator/…/OffsetCommitKey.json`` and ``OffsetCommitValue.json``. They are read by built-in
expressions that Spark compiles: there is none that reads a number from bytes, but ``conv(hex(…))`` does.
Since that is what takes the time, eight bytes are read at once wherever fields lie side by side.

Numbers are read from copies that are filled up with zeros; whether all bytes of a field were there is decided by
lengths alone, before anything is told. So a record that was cut has a reason and not one number.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.columns import moment
from karrot.pipeline.schemas import COMMITS, columns_of, with_day

__all__ = ["KEY_TYPES", "commits", "decode_offsets", "key_types"]

KEY_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    dict(
        enumerate(
            (
                "offset_commit_v0",
                "offset_commit",
                "group_metadata",
                "consumer_group_metadata",
                "consumer_group_partition_metadata",
                "consumer_group_member_metadata",
                "consumer_group_target_assignment_metadata",
                "consumer_group_target_assignment_member",
                "consumer_group_current_member_assignment",
                "share_group_partition_metadata",
                "share_group_member_metadata",
                "share_group_metadata",
                "share_group_target_assignment_metadata",
                "share_group_target_assignment_member",
                "share_group_current_member_assignment",
                "share_group_state_partition_metadata",
                "consumer_group_regular_expression",
                "streams_group_metadata",
                "streams_group_partition_metadata",
                "streams_group_member_metadata",
                "streams_group_target_assignment_metadata",
                "streams_group_target_assignment_member",
                "streams_group_current_member_assignment",
                "streams_group_topology",
                "streams_group_target_assignment_resolved_topic_ids",
            )
        )
    )
)
"""What a key's first int16 says of its record, as Kafka 4 names it. Consumers of every protocol commit with 1."""

_NULL_STRING: Final = 0xFFFF
_LONGEST_STRING: Final = 0x7FFF
_KEY_HEAD: Final = 4
# The shortest whole values of today, v3 and v4, have no fewer: only what is cut, or old, has to be filled up.
_VALUE_HEAD: Final = 24
# Of a varint five bytes are read: more make no int32.
_VARINT_AT: Final = 15


def decode_offsets(records: DataFrame, cluster: str) -> DataFrame:
    """One row per record of the Kafka source's shape (``key, value, topic, partition, offset, timestamp``).

    The columns of `COMMITS`; ``key_type`` (NULL where the key has none); ``readable``, false if there is a ``reason``;
    ``key`` and ``value`` as they came. Only readable records of the key types 0 and 1 say anything else than where they
    lie: the rest is for `decode_members`, or counted by `key_types`.
    """
    key = F.col("key")
    read = (
        records.withColumns({"_key_head": _number(_filled(key, _KEY_HEAD), 1, 4), "_key_length": F.length(key)})
        .withColumns({"_is_commit": (F.col("_key_length") >= F.lit(2)) & (F.col("_key_head") < F.lit(0x0002_0000))})
        .transform(_with_key)
        .transform(_with_value_head)
        .transform(_with_value)
        .withColumn("reason", _why_unreadable())
        .withColumn("readable", F.col("reason").isNull())
    )
    key_type = F.when(F.col("_key_length") >= F.lit(2), F.shiftright(F.shiftleft("_key_head", 32), 48).cast("int"))
    return read.select(*_told(cluster), key_type.alias("key_type"), "readable", "reason", "key", "value")


def commits(decoded: DataFrame) -> DataFrame:
    """The table ``commits`` and its day, of what `decode_offsets` made."""
    return (
        decoded.where(F.col("readable") & F.col("key_type").isin(0, 1))
        .withColumn("day", F.to_date("log_ts"))
        .select(*columns_of(with_day(COMMITS)))
    )


def key_types(decoded: DataFrame) -> DataFrame:
    """How many records of each ``key_type`` there are, with the type's ``name``.

    A type that is not in `KEY_TYPES` is named ``unknown``, a key without one ``none``.
    """
    names = F.create_map(*(F.lit(one) for pair in KEY_TYPES.items() for one in pair))
    name = F.when(F.col("key_type").isNull(), "none").otherwise(
        F.coalesce(F.try_element_at(names, F.col("key_type")), F.lit("unknown"))
    )
    return (
        decoded.groupBy("key_type").agg(F.count("*").alias("records")).select("key_type", name.alias("name"), "records")
    )


def _with_key(records: DataFrame) -> DataFrame:
    """Group, topic and partition lie where the lengths before them say."""
    key, length, is_commit = F.col("key"), F.col("_key_length"), F.col("_is_commit")
    group, topic = F.col("_group_length"), F.col("_topic_length")
    group_length = F.col("_key_head").bitwiseAND(F.lit(0xFFFF)).cast("int")
    topic_there = is_commit & (group <= F.lit(_LONGEST_STRING)) & (length >= group + F.lit(6))
    partition_there = (topic <= F.lit(_LONGEST_STRING)) & (length >= group + topic + F.lit(10))
    return (
        records.withColumn("_group_length", group_length)
        .withColumn("_topic_length", F.when(topic_there, _number(key, group + F.lit(5), 2)).cast("int"))
        .withColumn("_partition", F.when(partition_there, _int32(_number(key, group + topic + F.lit(7), 4))))
    )


def _with_value_head(records: DataFrame) -> DataFrame:
    """Bytes 1 to 16: the version, the offset, and either metadata's length or the leader's epoch before it."""
    value = F.when(F.col("_is_commit"), F.col("value"))
    return (
        records.withColumn("_head", _filled(value, _VALUE_HEAD))
        .withColumns(
            {
                "_high": _number(F.col("_head"), 1, 8),
                "_low": _number(F.col("_head"), 9, 8),
                "_length": F.length(value),
            }
        )
        .withColumn("_version", F.shiftrightunsigned("_high", 48).cast("int"))
    )


def _with_value(records: DataFrame) -> DataFrame:
    """From metadata on: ``_told_length`` is the length as written, ``_metadata_at`` (from 1) where the text begins."""
    version, low = F.col("_version"), F.col("_low")
    compact, width = _varint()
    at, length = F.col("_metadata_at"), F.col("_metadata_length")
    return (
        records.withColumn(
            "_rest",
            F.when(
                (version == F.lit(4)) & (low.bitwiseAND(F.lit(0x8080)) == F.lit(0x8080)), _number(F.col("_head"), 17, 8)
            ),
        )
        .withColumns(
            {
                "_told_length": F.when(version == F.lit(4), compact)
                .when(version == F.lit(3), low.bitwiseAND(F.lit(0xFFFF)))
                .otherwise(F.shiftrightunsigned(low, 32).bitwiseAND(F.lit(0xFFFF))),
                "_metadata_at": F.when(version == F.lit(4), F.lit(_VARINT_AT) + width)
                .when(version == F.lit(3), F.lit(17))
                .otherwise(F.lit(13)),
            }
        )
        .withColumn(
            "_metadata_length",
            F.when(version == F.lit(4), F.greatest(F.col("_told_length") - F.lit(1), F.lit(0)))
            .when(F.col("_told_length") == F.lit(_NULL_STRING), F.lit(0))
            .otherwise(F.col("_told_length")),
        )
        .withColumn("_ts_at", (at + length))
        .withColumn(
            "_commit_ts",
            F.when(
                F.col("_length") >= F.col("_ts_at") + F.lit(7), _number(F.col("value"), F.col("_ts_at").cast("int"), 8)
            ),
        )
    )


def _varint() -> tuple[Column, Column]:
    """The unsigned varint at byte 15, and in how many bytes it is written; NULL if in more than five."""
    low, rest = F.col("_low"), F.col("_rest")
    each = [
        F.shiftrightunsigned(low, 8).bitwiseAND(F.lit(0xFF)),
        low.bitwiseAND(F.lit(0xFF)),
        *(F.shiftrightunsigned(rest, shift).bitwiseAND(F.lit(0xFF)) for shift in (56, 48, 40)),
    ]
    value, width = F.lit(None).cast("bigint"), F.lit(None).cast("int")
    for count, byte in reversed(list(enumerate(each, start=1))):
        ends, weight = byte < F.lit(0x80), F.lit(1 << 7 * (count - 1))
        value = F.when(ends, byte * weight).otherwise((byte - F.lit(0x80)) * weight + value)
        width = F.when(ends, F.lit(count)).otherwise(width)
    return value, width


def _why_unreadable() -> Column:
    """The first thing that is wrong with the record, in the order of its bytes; NULL if nothing is."""
    return F.coalesce(
        F.when(F.col("_key_length").isNull() | (F.col("_key_length") < F.lit(2)), "no_key_type"),
        F.when(F.col("_is_commit"), F.coalesce(_why_not_the_key(), _why_not_the_value())),
    )


def _why_not_the_key() -> Column:
    length, group, topic = F.col("_key_length"), F.col("_group_length"), F.col("_topic_length")
    return (
        F.when(length < F.lit(_KEY_HEAD), "truncated_group")
        .when(group == F.lit(_NULL_STRING), "null_group")
        .when(group > F.lit(_LONGEST_STRING), "negative_length")
        .when(length < group + F.lit(4), "truncated_group")
        .when(length < group + F.lit(6), "truncated_topic")
        .when(topic == F.lit(_NULL_STRING), "null_topic")
        .when(topic > F.lit(_LONGEST_STRING), "negative_length")
        .when(length < group + topic + F.lit(6), "truncated_topic")
        .when(F.col("_partition").isNull(), "truncated_partition")
    )


def _why_not_the_value() -> Column:
    """NULL for a tombstone too: its length is NULL, and so is each comparison with it."""
    length, version, at = F.col("_length"), F.col("_version"), F.col("_metadata_at")
    ts_ends = F.col("_ts_at") + F.lit(7)
    is_compact = version == F.lit(4)
    return (
        F.when(length < F.lit(2), "truncated_version")
        .when(version > F.lit(4), "unknown_version")
        .when(length < F.lit(10), "truncated_offset")
        .when((version >= F.lit(3)) & (length < F.lit(14)), "truncated_leader_epoch")
        .when((length.isNotNull()) & at.isNull(), "long_varint")
        .when(length < at - F.lit(1), "truncated_metadata")
        .when(~is_compact & F.col("_metadata_length").between(_LONGEST_STRING + 1, _NULL_STRING - 1), "negative_length")
        .when(length < F.col("_ts_at") - F.lit(1), "truncated_metadata")
        .when(length < ts_ends, "truncated_commit_ts")
        .when((version == F.lit(1)) & (length < ts_ends + F.lit(8)), "truncated_expire_ts")
        .when(is_compact & ~_tags_are_whole(F.col("value"), ts_ends + F.lit(1)), "truncated_tags")
    )


def _tags_are_whole(value: Column, at: Column) -> Column:
    tail = F.substr(value, at.cast("int"), F.lit(3))
    return (
        F.when(F.startswith(tail, F.lit(b"\x00")), F.lit(True))
        .when(F.startswith(tail, F.lit(b"\x01\x00\x10")), F.length(value) >= at + F.lit(18))
        .otherwise(F.lit(False))
    )


def _told(cluster: str) -> list[Column]:
    key, value, readable, version = F.col("key"), F.col("value"), F.col("readable"), F.col("_version")
    says = readable & F.col("_is_commit")
    holds = says & value.isNotNull()
    group, topic, epoch = F.col("_group_length"), F.col("_topic_length"), F.shiftright("_low", 16)
    offset = F.shiftleft("_high", 16).bitwiseOR(F.shiftrightunsigned("_low", 48))
    expire_ms = F.when(holds & (version == F.lit(1)), _number(value, (F.col("_ts_at") + F.lit(8)).cast("int"), 8))
    columns = {
        "cluster": F.lit(cluster),
        "consumer": F.when(says, _text(key, F.lit(5), group)),
        "topic": F.when(says, _text(key, group + F.lit(7), topic)),
        "partition": F.when(says, F.col("_partition")),
        "version": F.when(holds, version),
        "offset": F.when(holds, offset),
        "metadata": F.when(
            holds & ~_is_null_metadata(),
            F.rtrim(_text(value, F.col("_metadata_at"), F.col("_metadata_length").cast("int")), F.lit("\0")),
        ),
        "leader_epoch": F.when(holds & (version >= F.lit(3)), _int32(epoch)),
        "commit_ts": F.when(holds, moment(F.col("_commit_ts"))),
        "commit_ts_ms": F.when(holds, F.col("_commit_ts")),
        "expire_ts": moment(expire_ms),
        "expire_ts_ms": F.when(expire_ms >= F.lit(0), expire_ms),
        "tombstone": F.when(says, value.isNull()),
        "log_partition": F.col("partition"),
        "log_offset": F.col("offset"),
        "log_ts": F.col("timestamp"),
        "log_ts_ms": F.unix_millis("timestamp"),
    }
    return [columns[name].alias(name) for name in columns_of(COMMITS)]


def _is_null_metadata() -> Column:
    told, version = F.col("_told_length"), F.col("_version")
    return F.when(version == F.lit(4), told == F.lit(0)).otherwise(told == F.lit(_NULL_STRING))


def _number(data: Column, at: int | Column, size: int) -> Column:
    """``size`` big-endian bytes from the position ``at`` (from 1): unsigned, and signed if they are eight."""
    at = F.lit(at) if isinstance(at, int) else at
    return F.conv(F.hex(F.substr(data, at, F.lit(size))), 16, -10).cast("bigint")


def _int32(number: Column) -> Column:
    return F.shiftright(F.shiftleft(number, 32), 32).cast("int")


def _filled(data: Column, size: int) -> Column:
    return F.when(F.length(data) >= F.lit(size), data).otherwise(F.rpad(data, size, F.lit(b"\0")))


def _text(data: Column, at: Column, length: Column) -> Column:
    """UTF-8, with U+FFFD for what is none: a cast alone keeps such bytes, and then no reader can open the file."""
    return F.make_valid_utf8(F.substr(data, at, length).cast("string"))
