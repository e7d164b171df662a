"""Decodes records of ``__consumer_offsets``: makes the table ``commits``, and names the type of every other record.

The key begins with the type of the record, the value with its version. Both are big-endian int16. The other fields are
those of Kafka's ``group-coordinator/…/OffsetCommitKey.json`` and ``OffsetCommitValue.json``.

A number that is read from too few bytes has no meaning. So the lengths are checked first: they show whether all bytes
of a field are there. A record that is cut off has a ``reason``, and none of its numbers.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.schemas_and_conversions import (
    COMMITS,
    QUARANTINE,
    RAW_BYTES,
    base64,
    columns_of,
    is_possible,
    possible_timestamp,
    with_day,
)

_BYTE: Final = 0xFF
_BITS: Final = 32
_POLYNOMIAL: Final = 0xEDB88320


def uint32(data: Column, at: Column) -> Column:
    """Read four bytes from the place ``at``, counted from 1, as a bigint.

    The number is undefined if there are fewer than four bytes. ``data`` must not be NULL.

    ``conv(hex(…))`` takes longer than all other work on a record. ``crc32`` takes a fiftieth of that. The checksum of
    four bytes can be turned back into the bytes, because each of its bits is the XOR of some bits of the value and of a
    constant. So the value is the XOR of four numbers from lookup tables, one for each byte of the checksum.
    """
    # Spark sees that no element of a literal array is NULL, so it does not check for NULL at each step.
    arrays = (F.expr(f"array({','.join(f'{number}L' for number in table)})") for table in tables())
    checksum = F.crc32(F.substr(data, at, F.lit(4)))
    first, second, third, fourth = (
        table[F.shiftright(checksum, 8 * place).bitwiseAND(F.lit(_BYTE))] for place, table in enumerate(arrays)
    )
    return first.bitwiseXOR(second).bitwiseXOR(third).bitwiseXOR(fourth)


def uint16(data: Column, at: Column) -> Column:
    """Read two bytes like `uint32`. At least two more bytes must precede ``at``."""
    return uint32(data, at - F.lit(2)).bitwiseAND(F.lit(0xFFFF))


def int64(data: Column, at: Column) -> Column:
    """Read eight bytes like `uint32`, as a signed number."""
    return F.shiftleft(uint32(data, at), _BITS).bitwiseOR(uint32(data, at + F.lit(4)))


@cache
def tables() -> tuple[tuple[int, ...], ...]:
    """Make a lookup table for each byte of a checksum, the lowest byte first. A table has the 256 numbers to XOR."""
    constant = _undone(0xFFFFFFFF) ^ 0xFFFFFFFF  # the register begins with all bits set, and the result is inverted
    return tuple(
        tuple(_undone(byte << 8 * place) ^ (0 if place else constant) for byte in range(_BYTE + 1))
        for place in range(4)
    )


def _undone(register: int) -> int:
    """Undo the 32 steps that the register of CRC-32 makes for four bytes."""
    for _ in range(_BITS):
        register = register << 1 if register < 1 << 31 else (register ^ _POLYNOMIAL) << 1 | 1
    return int.from_bytes(register.to_bytes(4, "little"), "big")


_TYPES: Final = """
    offset_commit_v0 offset_commit group_metadata consumer_group_metadata consumer_group_partition_metadata
    consumer_group_member_metadata consumer_group_target_assignment_metadata
    consumer_group_target_assignment_member consumer_group_current_member_assignment
    share_group_partition_metadata share_group_member_metadata share_group_metadata
    share_group_target_assignment_metadata share_group_target_assignment_member
    share_group_current_member_assignment share_group_state_partition_metadata consumer_group_regular_expression
    streams_group_metadata streams_group_partition_metadata streams_group_member_metadata
    streams_group_target_assignment_metadata streams_group_target_assignment_member
    streams_group_current_member_assignment streams_group_topology
    streams_group_target_assignment_resolved_topic_ids
"""
KEY_TYPES: Final[Mapping[int, str]] = dict(enumerate(_TYPES.split()))
"""The names of record types in Kafka 4, by the first int16 of the key. Commits of all protocols have type 1."""

_NULL: Final = 0xFFFF
"""The length field of a null string: -1, read as an unsigned number."""
_LONGEST: Final = 0x7FFF
_MOST_INT: Final = 0x7FFFFFFF
_ANY_PARTITIONS: Final = 1_000_000
_KEY_HEAD: Final = 4
_COMPACT: Final = 4  # from this version on, strings' lengths are varints, and the value ends in tagged fields

# A reader of tagged fields needs a loop. Spark's built-in expressions have no loop, so a regular expression matches the
# bytes as hexadecimal digits. The only known tagged field is the topic's id, of 16 bytes.
_MOST_TAG_BYTES: Final = 1024
_TAG: Final = "(?:(?:[89A-F].)*[0-7].(?:" + "|".join(f"{size:02X}.{{{2 * size}}}" for size in range(128)) + "))"
_TAGS: Final = "^(?:" + "|".join(f"{count:02X}{_TAG}{{{count}}}" for count in range(8)) + ")"
"""Up to seven tagged fields of up to 127 bytes each, in hexadecimal digits."""


def decode_offsets(records: DataFrame, cluster: str) -> DataFrame:
    """Make one row per record. The records have the columns of Spark's Kafka source.

    These columns are ``key, value, topic, partition, offset, timestamp``. A row has the columns of `COMMITS`,
    ``key_type`` (NULL if the key has none), and the unchanged ``key`` and ``value``. ``readable`` is false if there is
    a ``reason``. Only readable records of key types 0 and 1 have more columns than the place. The other
    records are for `members_of`, or are counted by the name of their type.

    Records with a column ``written_at`` come from files. A record without a partition, an offset or a possible
    timestamp has a ``reason``. Its ``log_ts`` is then ``written_at``, because a row in ``quarantine`` needs a day.
    """
    if "written_at" not in records.columns:
        return _decoded(records, cluster)
    has_all = F.col("partition").isNotNull() & F.col("offset").isNotNull() & is_possible("timestamp")
    # These records get a separate query: the code that Spark compiles for readable records has no room left.
    lacking = _lacking(records.where(~has_all), cluster)
    return _decoded(records.where(has_all), cluster).unionByName(lacking, allowMissingColumns=True)


def commits(decoded: DataFrame) -> DataFrame:
    """Make the table ``commits``, with its day, from the rows of `decode_offsets`."""
    return (
        decoded.where(F.col("readable") & F.col("key_type").isin(0, 1))
        .withColumn("day", F.to_date("log_ts"))
        .select(*columns_of(with_day(COMMITS)))
    )


def _decoded(records: DataFrame, cluster: str) -> DataFrame:
    judged = records.transform(_with_key).transform(_with_value).transform(_with_verdict)
    # This `coalesce` changes no row and no partition. It makes Spark compile the steps before and after it into two
    # methods. One method would be too large for HotSpot, which does not compile more than 8,000 bytes.
    apart = judged.drop("_key", "_value").coalesce(_ANY_PARTITIONS)
    return apart.transform(_with_numbers).select(*_commit_columns(cluster), "readable", "reason", "key", "value")


def _lacking(records: DataFrame, cluster: str) -> DataFrame:
    log_ts = F.when(is_possible("timestamp"), F.col("timestamp")).otherwise(F.col("written_at"))
    why = F.when(F.col("partition").isNull(), "no_partition").when(F.col("offset").isNull(), "no_offset")
    return records.select(
        F.lit(cluster).alias("cluster"),
        F.col("partition").alias("log_partition"),
        F.col("offset").alias("log_offset"),
        log_ts.alias("log_ts"),
        F.unix_millis(log_ts).alias("log_ts_ms"),
        F.lit(False).alias("readable"),
        why.when(F.col("timestamp").isNull(), "no_timestamp").otherwise("impossible_time").alias("reason"),
        "key",
        "value",
    )


def _with_key(records: DataFrame) -> DataFrame:
    """Add the type, the lengths of group and topic, and the number of bytes left after each (``_after_…``)."""
    key, length = F.col("_key"), F.col("_key_length")
    filled = F.when(length >= F.lit(_KEY_HEAD), key).otherwise(F.rpad(key, _KEY_HEAD, F.lit(b"\0")))
    head = uint32(filled, F.lit(1))
    return (
        records.withColumn("_key", _key())
        .withColumn("_key_length", F.length("_key"))
        .withColumn("_key_head", head)
        .withColumns(
            {"_type": _int(F.shiftright("_key_head", 16)), "_group": _int(F.col("_key_head").bitwiseAND(F.lit(0xFFFF)))}
        )
        .withColumn("_is_commit", (length >= F.lit(2)) & (F.col("_type") < F.lit(2)))
        .withColumns({"_after_group": length - F.col("_group"), "_topic_at": F.col("_group") + F.lit(7)})
        .withColumn("_topic", _int(uint16(key, F.col("_group") + F.lit(5))))
        .withColumn("_after_topic", F.col("_after_group") - F.col("_topic"))
    )


def _with_value(records: DataFrame) -> DataFrame:
    """Add the places of a value's parts, counted from 1.

    The metadata begins at ``_at`` and has ``_text`` bytes; the times begin at ``_ts_at``. ``_length`` is the length of
    the value, -1 for a tombstone.
    """
    two_at = F.when(F.col("_version") < F.lit(3), F.lit(11)).otherwise(F.lit(15))
    return (
        records.withColumn("_length", F.coalesce(F.when(F.col("_is_commit"), F.length("value")), F.lit(-1)))
        .withColumn("_value", _value())
        .withColumn("_version", _version(F.substr("_value", F.lit(1), F.lit(2))))
        .withColumn("_two", _int(uint16(F.col("_value"), two_at)))
        .transform(_with_metadata)
        .withColumn("_ts_at", F.col("_at") + F.col("_text"))
        .withColumn("_after_text", F.col("_length") - F.col("_ts_at"))
    )


def _with_metadata(records: DataFrame) -> DataFrame:
    """Add the length of the metadata: the int16 ``_two``, or a varint of up to three bytes at the same place."""
    version, two, third = F.col("_version"), F.col("_two"), F.col("_third")
    first, low_bits = F.shiftright(two, 8), two.bitwiseAND(F.lit(0x7F))
    is_compact = version >= F.lit(_COMPACT)
    has_two, has_three = (two >= F.lit(0x8000)), two.bitwiseAND(F.lit(0x8080)) == F.lit(0x8080)
    long = first.bitwiseAND(F.lit(0x7F)).bitwiseOR(F.shiftleft(low_bits, 7)).bitwiseOR(F.shiftleft(third, 14))
    read_third = _int(uint16(F.col("_value"), F.lit(16)).bitwiseAND(F.lit(0xFF)))
    at = F.when(version < F.lit(3), 13).when(~is_compact | (has_two & ~has_three), 17).when(has_two, 18).otherwise(16)
    return (
        records.withColumn("_third", F.when(is_compact & has_three, read_third).otherwise(F.lit(0)))
        .withColumns(
            {
                "_at": at,
                "_declared": F.when(is_compact, F.when(has_two, long).otherwise(first) - F.lit(1))
                .when(two == F.lit(_NULL), F.lit(-1))
                .otherwise(two),
            }
        )
        .withColumn("_text", F.greatest("_declared", F.lit(0)))
    )


def _with_verdict(records: DataFrame) -> DataFrame:
    why = (
        F.when(F.col("_key_length") < F.lit(2), "no_key_type")
        .when(~F.col("_is_commit"), None)
        .otherwise(F.coalesce(_wrong_in_key(), _wrong_in_value()))
    )
    # The partition's id stops Spark from pushing a filter down. Such a filter would contain many copies of all
    # expressions above.
    readable = F.col("reason").isNull() & (F.spark_partition_id() >= F.lit(0))
    return records.withColumn("reason", why).withColumn("readable", readable)


def _wrong_in_key() -> Column:
    group, topic = F.col("_group"), F.col("_topic")
    after_group, after_topic = F.col("_after_group"), F.col("_after_topic")
    return (
        F.when(group > F.lit(_LONGEST), _odd_length(group, "null_group"))
        .when(after_group < F.lit(4), "truncated_group")
        .when(after_group < F.lit(6), "truncated_topic")
        .when(topic > F.lit(_LONGEST), _odd_length(topic, "null_topic"))
        .when(after_topic < F.lit(6), "truncated_topic")
        .when(after_topic < F.lit(10), "truncated_partition")
    )


def _wrong_in_value() -> Column:
    """Return the first fault of a value, in the order of its bytes; a tombstone has no fault."""
    length, version, left = F.col("_length"), F.col("_version"), F.col("_after_text")
    is_compact = version == F.lit(_COMPACT)
    return (
        F.when(length < F.lit(0), None)
        .when(length < F.lit(2), "truncated_version")
        .when(version > F.lit(_COMPACT), "unknown_version")
        .when(length < F.lit(10), "truncated_offset")
        .when((version >= F.lit(3)) & (length < F.lit(14)), "truncated_leader_epoch")
        .when((version >= F.lit(3)) & (length < F.lit(16)), "truncated_metadata")
        .when(length < F.col("_at") - F.lit(1), "truncated_metadata")
        .when(F.col("_third") > F.lit(0x7F), "long_varint")
        .when(~is_compact & (F.col("_text") > F.lit(_LONGEST)), "negative_length")
        .when(left < F.lit(-1), "truncated_metadata")
        .when(left < F.lit(7), "truncated_commit_ts")
        .when((version == F.lit(1)) & (left < F.lit(15)), "truncated_expire_ts")
        .when(is_compact & ~_are_tags_whole(), "truncated_tags")
    )


def _odd_length(length: Column, null: str) -> Column:
    return F.when(length == F.lit(_NULL), null).otherwise("negative_length")


def _are_tags_whole() -> Column:
    """Whether the tagged fields end within the value; bytes after them are ignored.

    A value without tagged fields is accepted, as in Burrow: all other fields are there. No broker writes such a value.
    """
    tail = F.substr("_value", F.col("_ts_at") + F.lit(8), F.lit(_MOST_TAG_BYTES))
    nothing_else = (F.col("_after_text") == F.lit(7)) | (tail == F.lit(b"\0"))
    return nothing_else | F.rlike(F.hex(tail), F.lit(_TAGS))


def _with_numbers(records: DataFrame) -> DataFrame:
    """Add the numbers to every record, even to records that lack the bytes of a number.

    If a condition decided whether a number is read, Spark would copy the expression to each place that uses the number.
    """
    key, value, ts_at = _key(), _value(), F.col("_ts_at")
    return records.withColumns(
        {
            "_has_value": F.col("readable") & (F.col("_length") >= F.lit(0)),
            "_names": F.col("readable") & F.col("_is_commit"),
            "_partition": uint32(key, F.col("_topic_at") + F.col("_topic")),
            "_offset": int64(value, F.lit(3)),
            "_epoch": uint32(value, F.lit(11)),
            "_commit_ms": int64(value, ts_at),
            "_expire_ms": int64(value, ts_at + F.lit(8)),
        }
    )


def _commit_columns(cluster: str) -> list[Column]:
    key, value, version = _key(), _value(), F.col("_version")
    names, has_value = F.col("_names"), F.col("_has_value")
    group, topic, topic_at = F.col("_group"), F.col("_topic"), F.col("_topic_at")
    metadata = F.rtrim(_text(value, F.col("_at"), F.col("_text")), F.lit("\0"))
    commit_ms, expire_ms, epoch = F.col("_commit_ms"), F.col("_expire_ms"), F.col("_epoch")
    has_epoch = has_value & (version >= F.lit(3)) & (epoch <= F.lit(_MOST_INT))
    expires = has_value & (version == F.lit(1))
    type_there = F.col("_key_length") >= F.lit(2)
    columns = {
        "cluster": F.lit(cluster),
        "consumer": F.when(names, _text(key, F.lit(5), group)),
        "topic": F.when(names, _text(key, topic_at, topic)),
        "partition": F.when(names, F.shiftright(F.shiftleft("_partition", 32), 32).cast("int")),
        "version": F.when(has_value, version),
        "offset": F.when(has_value, F.col("_offset")),
        "metadata": F.when(has_value & (F.col("_declared") >= F.lit(0)), metadata),
        "leader_epoch": F.when(has_epoch, _int(epoch)),
        "commit_ts": F.when(has_value, possible_timestamp(commit_ms)),
        "commit_ts_ms": F.when(has_value, commit_ms),
        "expire_ts": F.when(expires, possible_timestamp(expire_ms)),
        "expire_ts_ms": F.when(expires & (expire_ms >= F.lit(0)), expire_ms),
        "tombstone": F.when(names, ~has_value),
        "log_partition": F.col("partition"),
        "log_offset": F.col("offset"),
        "log_ts": F.col("timestamp"),
        "log_ts_ms": F.unix_millis("timestamp"),
        "key_type": F.when(type_there, F.shiftright(F.shiftleft("_type", 16), 16)),
    }
    return [columns[name].alias(name) for name in (*columns_of(COMMITS), "key_type")]


def _key() -> Column:
    return F.coalesce("key", F.lit(b""))


def _value() -> Column:
    """Return the value of a commit, or empty bytes for a tombstone and other records."""
    return F.coalesce(F.when(F.col("_length") >= F.lit(0), F.col("value")), F.lit(b""))


def _version(head: Column) -> Column:
    """Return the version; for an unknown version, the newest known version plus 1."""
    known = F.when(head == F.lit(b"\0\3"), 3).when(head == F.lit(b"\0\1"), 1).when(head == F.lit(b"\0\4"), 4)
    return known.when(head == F.lit(b"\0\0"), 0).when(head == F.lit(b"\0\2"), 2).otherwise(_COMPACT + 1)


def _int(number: Column) -> Column:
    return number.cast("int")


def _text(data: Column, at: Column, length: Column) -> Column:
    """Read UTF-8, with U+FFFD for invalid bytes. A cast would keep the bytes, and readers could not open the file."""
    return F.make_valid_utf8(F.substr(data, at, length).cast("string"))


def bad_records(decoded: DataFrame) -> DataFrame:
    """Make rows of ``quarantine`` from the records that `decode_offsets` or `members_of` could not read.

    ``source`` is ``<cluster>/__consumer_offsets-<partition>``, without ``-<partition>`` if the record has none.
    ``position`` is the record's offset. ``raw`` is a JSON object with ``key`` and ``value`` in base64: the first 64 KiB
    of each, or ``null`` if the record had none.
    """
    raw = F.struct(*(base64(F.substring(name, 1, RAW_BYTES)).alias(name) for name in ("key", "value")))
    return (
        decoded.where(~F.col("readable"))
        .withColumns(
            {
                "source": F.concat_ws(
                    "-", F.concat("cluster", F.lit("/__consumer_offsets")), F.col("log_partition").cast("string")
                ),
                "raw": F.to_json(raw, {"ignoreNullFields": "false"}),
                "position": F.col("log_offset"),
                "missing": F.lit(None).cast("bigint"),
                "day": F.to_date("log_ts"),
            }
        )
        .select(*columns_of(with_day(QUARANTINE)))
    )
