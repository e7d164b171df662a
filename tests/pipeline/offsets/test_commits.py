import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertSchemaEqual

from karrot.pipeline.offsets.commits import KEY_TYPES, bad_records, commits, decode_offsets
from karrot.pipeline.schemas_and_conversions import COMMITS, QUARANTINE, columns_of, with_day
from support.kafka.offset_records import commit_key, commit_value, group_key, other_key, string, varint
from support.pipeline.kafka_source_rows import LOG_TS_MS, Record, records_frame, records_table

_KEY = commit_key("orders-svc", "orders", 7)
_NAMES = {"consumer": "orders-svc", "topic": "orders", "partition": 7, "key_type": 1}
_TOPIC_ID = {0: bytes(range(16))}
_CASES = json.loads(Path(__file__, "../../../data/burrow/offsets_cases.json").resolve().read_text())["upstream_cases"]


class Case(NamedTuple):
    """A record and its expected columns that are not NULL, without the record's position."""

    key: bytes | None
    value: bytes | None
    expected: dict[str, Any]


def _read(spark: SparkSession, told: Sequence[Record]) -> list[dict[str, Any]]:
    """Decode each record. Times are in milliseconds, because Python's datetimes end with the year 9999."""
    decoded = decode_offsets(records_frame(spark, told), "prod")
    lies = ["cluster", "log_partition", "log_offset", "log_ts", "log_ts_ms", "key", "value"]
    times = [F.unix_millis(name).alias(name) for name in ("commit_ts", "expire_ts")]
    kept = [name for name in decoded.columns if name not in {*lies, "commit_ts", "expire_ts"}]
    rows = decoded.orderBy("log_offset").select(*kept, *times).collect()
    return [{name: said for name, said in row.asDict().items() if said is not None} for row in rows]


def _commit(version: int, offset: int, ms: int = 1_746_950_400_000, **more: Any) -> dict[str, Any]:
    told = {"version": version, "offset": offset, "metadata": "", "commit_ts": ms, "commit_ts_ms": ms}
    return {
        name: said for name, said in {**_NAMES, **told, "tombstone": False, **_GOOD, **more}.items() if said is not None
    }


def _bad(reason: str, key_type: int | None = 1) -> dict[str, Any]:
    return {**({} if key_type is None else {"key_type": key_type}), "readable": False, "reason": reason}


_GOOD = {"readable": True}
_EPOCH = {"epoch": 5, "expire_ts": 1_746_950_500_000}


def _versions() -> Iterator[Case]:
    for version in range(5):
        more: dict[str, Any] = {}
        if version == 1:
            more = {"expire_ts": 1_746_950_500_000, "expire_ts_ms": 1_746_950_500_000}
        if version >= 3:
            more = {"leader_epoch": 5}
        for metadata in ("", "m", "é" * 63, "x" * 127, "y" * 16_382, "z" * 16_383, "z" * 32_767, None):
            value = commit_value(version, 2**62 + 1, metadata=metadata, tagged=_TOPIC_ID, **_EPOCH)
            yield Case(_KEY, value, _commit(version, 2**62 + 1, metadata=metadata, **more))
        yield Case(_KEY, commit_value(version, -1), _commit(version, -1))
        yield Case(_KEY, commit_value(version, 5) + b"more", _commit(version, 5))


def _moments() -> Iterator[Case]:
    """A time that no timestamp can hold, or that is clearly wrong, is given only in milliseconds."""
    for ms in (0, -1, -(2**63), 2**63 - 1, 253_402_300_800_000, 7_850_000_000_000_000_000):
        yield Case(_KEY, commit_value(3, 5, commit_ts=ms), _commit(3, 5, ms, commit_ts=None))
    last = 253_402_300_799_999
    yield Case(_KEY, commit_value(1, 5, commit_ts=last, expire_ts=2**62), _commit(1, 5, last, expire_ts_ms=2**62))


def _texts() -> Iterator[Case]:
    for raw, text in [
        (b"\xff", "�"),
        (b"menu\xc3", "menu�"),
        (b"\xf0\x9f\xa5\x95", "🥕"),
        (b"\xf0\x9f\xa5.", "�."),
        (b"\xed\xa0\x80", "���"),
        (b"\xc0\xaf", "��"),
        (b"a\0b", "a\0b"),
    ]:
        said: dict[str, Any] = {"consumer": text, "topic": text, "metadata": text}
        value = commit_value(4, 5, metadata=raw)
        yield Case(commit_key(raw, raw, 7), value, _commit(4, 5, **said))
    yield Case(_KEY, commit_value(3, 5, metadata="librdkafka\0"), _commit(3, 5, metadata="librdkafka"))
    yield Case(
        commit_key("", "", 0), None, {**_NAMES, "consumer": "", "topic": "", "partition": 0, "tombstone": True, **_GOOD}
    )
    long = "n" * 32_767
    yield Case(
        commit_key(long, long, 2**31 - 1),
        None,
        {**_NAMES, "consumer": long, "topic": long, "partition": 2**31 - 1, "tombstone": True, **_GOOD},
    )


def _keys() -> Iterator[Case]:
    value = commit_value(3, 5)
    yield Case(_KEY, None, {**_NAMES, "tombstone": True, **_GOOD})
    yield Case(commit_key("orders-svc", "orders", 7, version=0), value, _commit(3, 5, key_type=0))
    yield Case(_KEY + b"more", value, _commit(3, 5))
    yield Case(None, value, _bad("no_key_type", None))
    yield Case(b"", value, _bad("no_key_type", None))
    yield Case(b"\0", None, _bad("no_key_type", None))
    yield Case(commit_key(None, "orders", 7), value, _bad("null_group"))
    yield Case(commit_key("orders-svc", None, 7), value, _bad("null_topic"))
    yield Case(pack(">hh", 1, -2) + b"x" * 40, value, _bad("negative_length"))
    yield Case(pack(">h", 1) + string("g") + pack(">h", -32_768) + b"x" * 40, None, _bad("negative_length"))
    yield Case(group_key("orders-svc"), b"any", {"key_type": 2, **_GOOD})
    for kind in (*range(3, 25), 32_767, -1):
        yield Case(other_key(kind, "orders-svc", "member"), value, {"key_type": kind, **_GOOD})


def _values() -> Iterator[Case]:
    for version in (5, 99, 32_767, -1):
        yield Case(_KEY, pack(">h", version) + commit_value(3, 5)[2:], _bad("unknown_version"))
    yield Case(_KEY, pack(">hqh", 1, 5, -2) + b"x" * 40_000, _bad("negative_length"))
    yield Case(_KEY, pack(">hqih", 3, 5, 5, -32_768) + b"x" * 40_000, _bad("negative_length"))
    head, times = pack(">hqi", 4, 5, -1), pack(">q", 1_746_950_400_000) + b"\0"
    yield Case(
        _KEY, head + b"\x82\x80\0" + b"m" + times, _commit(4, 5, metadata="m")
    )  # encoded with more bytes than needed
    yield Case(_KEY, head + b"\xff\xff\xff\x01" + b"x" * 100, _bad("long_varint"))
    for tagged in ({}, {5: b""}, {0: b"i" * 16, 1: b"x" * 127}, {300: b"abc"}, dict.fromkeys(range(7), b"y")):
        yield Case(_KEY, commit_value(4, 5, tagged=tagged), _commit(4, 5))
        yield Case(_KEY, commit_value(4, 5, tagged=tagged) + b"\0\1", _commit(4, 5))
    yield Case(_KEY, head + varint(1) + times[:-1] + b"\x02\0\x01a\x01\x02b", _bad("truncated_tags"))


def _cut() -> Iterator[Case]:
    """Cut at every byte. A value of version 4 without only its tagged fields is complete, as for Burrow."""
    for at in range(2, len(_KEY)):
        part = "group" if at < 14 else "topic" if at < 22 else "partition"
        yield Case(_KEY[:at], commit_value(3, 5), _bad(f"truncated_{part}"))
    for version in range(5):
        for metadata in ("", "note", "x" * 200):
            whole = commit_value(version, 2**40, metadata=metadata, tagged={**_TOPIC_ID, 3: b"abc"}, **_EPOCH)
            parts = _parts(version, metadata)
            for at in range(len(whole)):
                if (version, at) == (4, parts["commit_ts"]):
                    yield Case(_KEY, whole[:at], _commit(4, 2**40, metadata=metadata, leader_epoch=5))
                else:
                    cut = next(name for name, end in parts.items() if at < end)
                    yield Case(_KEY, whole[:at], _bad(f"truncated_{cut}"))


def _parts(version: int, metadata: str) -> dict[str, int]:
    """Return the end position of each part of a value."""
    parts = {"version": 2, "offset": 10}
    if version >= 3:
        parts["leader_epoch"] = 14
    size = len(varint(len(metadata) + 1)) if version == 4 else 2
    parts["metadata"] = list(parts.values())[-1] + size + len(metadata)
    parts["commit_ts"] = parts["metadata"] + 8
    parts["metadata"] = max(parts["metadata"], 16 if version == 4 else 0)  # a varint is read as two bytes
    parts[{1: "expire_ts", 4: "tags"}.get(version, "end")] = 10_000
    return parts


def test_every_record_is_decoded_and_a_cut_record_gives_no_values(spark: SparkSession) -> None:
    cases = [*_versions(), *_moments(), *_texts(), *_keys(), *_values(), *_cut()]
    read = _read(spark, [(case.key, case.value) for case in cases])
    wrong = [(case, said) for case, said in zip(cases, read, strict=True) if said != case.expected]
    assert wrong[:1] == []


# ---- Burrow's own cases ----

_ERROR_AT = {"timestamp": "commit_ts", "leaderEpoch": "leader_epoch"}
_READ_HERE = re.compile("decodeOffset|decodeKeyAndOffset|decodeAndSendOffset|processConsumerOffsets")
_BETTER: dict[str, dict[str, Any]] = {
    # Kafka 2.1 wrote version 2, which Burrow does not know.
    "decodeKeyAndOffsetErrors[2]": {"offset": 8372, "commit_ts_ms": 1637},
    # Burrow's configuration decides which groups it keeps.
    "TestKafkaClient_decodeKeyAndOffset_Allowlist": {"consumer": "dropthisgroup", "offset": 8372},
}


def _record(case: dict[str, Any]) -> Record:
    """Return the case's bytes as a complete record."""
    given = bytes.fromhex(case.get("input_hex", ""))
    value_version = re.search(r"ValueV?(\d)", case["function"])
    if case["function"] == "decodeOffsetKeyV0":
        return pack(">h", 1) + given, None
    if value_version:
        return _KEY, pack(">h", int(value_version[1])) + given
    key, value = (bytes.fromhex(case[name]) for name in ("key_hex", "value_hex"))
    return (key if "WITHOUT" not in case["key_note"] else pack(">h", 1) + key), value


def _expected(case: dict[str, Any]) -> dict[str, Any]:
    names = {"group": "consumer", "timestamp": "commit_ts_ms"}
    told = case["expected"]
    if case["name"] in _BETTER:
        return _BETTER[case["name"]]
    if told.get("error_at"):
        return _bad(f"truncated_{_ERROR_AT.get(told['error_at'], told['error_at'])}")
    said = told.get("request", told)
    if said is None:
        return {}
    kept = ("group", "topic", "partition", "offset", "timestamp")
    return {names.get(name, name): said[name] for name in kept if name in said and "owner" not in said}


def test_burrows_own_cases_of_commits_are_read_at_least_as_well_as_by_burrow(spark: SparkSession) -> None:
    cases = [case for case in _CASES if _READ_HERE.match(case["function"])]
    assert len(cases) == 31
    read = _read(spark, [_record(case) for case in cases])
    for case, said in zip(cases, read, strict=True):
        expected = _expected(case)
        assert expected.items() <= said.items(), case["name"]
        if not expected:  # Burrow ignores it: it is not a commit, or it cannot be read
            assert "offset" not in said, case["name"]


# ---- The tables ----


def test_each_record_goes_to_commits_quarantine_or_another_type(spark: SparkSession) -> None:
    told: list[Record] = [
        (_KEY, commit_value(4, 5)),
        (_KEY, None),
        (_KEY, b"\0\3"),
        (None, b"\0"),
        (group_key("g"), b""),
        (other_key(11, "g"), b""),
        (other_key(77, "g"), b""),
    ]
    decoded = decode_offsets(records_frame(spark, told), "prod")
    table, bad = commits(decoded), bad_records(decoded)
    assertSchemaEqual(table.schema, with_day(COMMITS), ignoreNullable=True)
    assertSchemaEqual(bad.schema, with_day(QUARANTINE), ignoreNullable=True)
    places = ["cluster", "log_partition", "log_offset", "log_ts_ms", "tombstone"]
    assert [tuple(row) for row in table.select(*places, F.col("day").cast("string")).collect()] == [
        ("prod", 3, at, LOG_TS_MS, at == 1, "2025-05-11") for at in (0, 1)
    ]
    key = "AAEACm9yZGVycy1zdmMABm9yZGVycwAAAAc="
    assert [tuple(row) for row in bad.select(*columns_of(QUARANTINE)).collect()] == [
        ("prod/__consumer_offsets-3", "truncated_offset", f'{{"key":"{key}","value":"AAM="}}', 2, None),
        ("prod/__consumer_offsets-3", "no_key_type", '{"key":null,"value":"AA=="}', 3, None),
    ]
    counted = decoded.groupBy("key_type").count().collect()
    assert {row.key_type: row["count"] for row in counted} == {1: 3, None: 1, 2: 1, 11: 1, 77: 1}
    assert {KEY_TYPES[kind] for kind in (1, 2, 11)} == {"offset_commit", "group_metadata", "share_group_metadata"}


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """Compile queries as in production; the session of the tests interprets them."""
    asked = {
        "spark.sql.codegen.wholeStage": "true",
        "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
        "spark.sql.maxPlanStringLength": "10000000",
    }
    before = {name: spark.conf.get(name) for name in asked}
    for name, setting in asked.items():
        spark.conf.set(name, setting)
    yield spark
    for name, earlier in before.items():
        spark.conf.set(name, earlier or "")


def test_the_decoder_generates_no_method_that_is_too_large_for_hotspot(compiling: SparkSession, tmp_path: Path) -> None:
    """HotSpot never compiles a method with more than 8,000 bytes of bytecode, and so it takes four times as long."""
    pq.write_table(records_table([(_KEY, None)]), tmp_path / "records.parquet")
    decoded = decode_offsets(compiling.read.parquet(str(tmp_path)), "prod")
    for table in (decoded, commits(decoded), bad_records(decoded)):
        told = compiling.sparkContext._jvm.PythonSQLUtils.explainString(table._jdf.queryExecution(), "codegen")  # type: ignore[union-attr]
        sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", told)]
        assert len(sizes) >= 2
        assert 0 < max(sizes) < 8_000
