"""`LandOffsets` reads files. The tests with a real broker are in tests/e2e/test_offsets.py."""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from karrot.cli.pipeline.job_errors import why_it_failed
from karrot.pipeline.offsets.commits import decode_offsets
from karrot.pipeline.offsets.job import LandOffsets, OffsetsSummary, as_json
from karrot.pipeline.offsets.log_ends import LandEnds, PollSummary
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.record_sources import OFFSETS_TOPIC, NoRecords, RecordsFromParquet
from support.kafka.offset_records import commit_key, commit_value, group_key, group_value, other_key
from support.pipeline.expected_tables.comparison import table_rows
from support.pipeline.kafka_source_rows import KAFKA_SOURCE_SCHEMA, LOG_TS, LOG_TS_MS, Record, records_table

_COMMITS = [(commit_key("g", "t", 0), commit_value(version, 100 + version)) for version in (0, 1, 3, 4)]
_TOMBSTONE = (commit_key("g", "t", 1), None)
_CUT = (commit_key("g", "t", 0), commit_value(3, 7)[:9])
_OTHERS = [(other_key(3, "g"), b"\0\0"), (other_key(5, "g", "m"), b"\0\0"), (other_key(3, "h"), b"\0\0")]


def _file(directory: Path, name: str, records: Iterable[Record], first: int) -> None:
    directory.mkdir(exist_ok=True)
    pq.write_table(records_table(records, first), directory / name)


def _run(spark: SparkSession, records: Path, tables: Tables) -> OffsetsSummary:
    job = LandOffsets(spark, RecordsFromParquet(str(records)), "prod", tables, tables.checkpoint("offsets"))
    job.start().awaitTermination()
    return job.total


def _rows(tables: Tables, name: str, by: str) -> list[dict[str, Any]]:
    return sorted(table_rows(Path(tables.directory), name), key=itemgetter(by))


def test_every_record_is_accounted_for_and_stored_once_despite_repeats(spark: SparkSession, tmp_path: Path) -> None:
    class DiesAfterwards(Tables):
        def append(self, df: DataFrame, name: str, batch_id: str, *, job: str = "") -> int:
            super().append(df, name, batch_id, job=job)
            raise InterruptedError("killed after the table was written")

    records, tables = tmp_path / "records", Tables(str(tmp_path / "tables"))
    metadata = [(group_key("g"), group_value(3, [])), (group_key("g"), None), (group_key("g"), b"\0")]
    _file(records, "1.parquet", [*_COMMITS, _TOMBSTONE, _CUT, *_OTHERS, *metadata], first=50)
    with pytest.raises(StreamingQueryException, match="killed after the table was written"):
        _run(spark, records, DiesAfterwards(tables.directory))
    first = _run(spark, records, tables)
    others = Counter({"consumer_group_metadata": 2, "consumer_group_member_metadata": 1})
    assert first == OffsetsSummary(
        batches=2, records=12, commits=4, tombstones=1, members=2, others=others, quarantined=2
    )
    assert str(first) == (
        "12 records = 4 commits + 1 tombstones + 2 of members + 3 others (consumer_group_member_metadata 1, "
        "consumer_group_metadata 2) + 2 quarantined + 0 duplicates"
    )

    # The next files repeat records that are in the tables or, for other types, were counted; one file repeats another.
    _file(records, "2.parquet", [_CUT, _OTHERS[0]], first=55)
    _file(records, "3.parquet", [_COMMITS[0]], first=62)
    _file(records, "4.parquet", [_COMMITS[0]], first=62)
    _file(records, "5.parquet", metadata, first=59)
    # Records without an offset are not equal to each other. Records without a time belong to their file's day.
    whole = records_table([*_COMMITS, metadata[0]], first=70)
    for column, name in ((3, "partition"), (4, "offset"), (5, "timestamp")):
        nulls = pa.nulls(len(whole), KAFKA_SOURCE_SCHEMA.field(name).type)
        pq.write_table(whole.set_column(column, KAFKA_SOURCE_SCHEMA.field(name), nulls), records / f"{name}.parquet")
    # A day at the end of the calendar would break the arithmetic, because it has no day before or after it.
    never = pa.array([-62_135_596_800_000_000, -1, *[253_402_300_799_000_000] * (len(whole) - 2)])
    never = never.cast(KAFKA_SOURCE_SCHEMA.field("timestamp").type)
    others = records_table([*_COMMITS, metadata[0]], first=80)
    pq.write_table(others.set_column(5, KAFKA_SOURCE_SCHEMA.field("timestamp"), never), records / "never.parquet")
    second = _run(spark, records, tables)
    assert second == OffsetsSummary(
        batches=1, records=27, commits=1, others=Counter(consumer_group_metadata=1), quarantined=20, duplicates=5
    )
    assert (first + second).others == {"consumer_group_metadata": 3, "consumer_group_member_metadata": 1}
    commits = _rows(tables, "commits", "log_offset")
    assert [(row["log_offset"], row["offset"], row["tombstone"]) for row in commits] == [
        (50, 100, False),
        (51, 101, False),
        (52, 103, False),
        (53, 104, False),
        (54, None, True),
        (62, 100, False),
    ]
    assert [row["log_offset"] for row in _rows(tables, "members", "log_offset")] == [59, 60]
    quarantined = tables.read(spark, "quarantine").orderBy("position").collect()
    lacking = [row for row in quarantined if row.reason.startswith("no_") or row.reason == "impossible_time"]
    bad = [row for row in quarantined if row not in lacking]
    assert [(row.source, row.position) for row in bad] == [(f"prod/{OFFSETS_TOPIC}-3", at) for at in (55, 61)]
    assert bad[0].reason == "truncated_offset"
    raw = json.loads(bad[0].raw)
    assert tuple(base64.b64decode(raw[part], validate=True) for part in ("key", "value")) == _CUT
    assert sorted({(row.reason, row.source, row.day) for row in lacking}) == [
        ("impossible_time", f"prod/{OFFSETS_TOPIC}-3", _written_on(records / "never.parquet")),
        ("no_offset", f"prod/{OFFSETS_TOPIC}-3", LOG_TS.date()),
        ("no_partition", f"prod/{OFFSETS_TOPIC}", LOG_TS.date()),
        ("no_timestamp", f"prod/{OFFSETS_TOPIC}-3", _written_on(records / "timestamp.parquet")),
    ]


def test_log_ends_may_come_from_files_too(spark: SparkSession, tmp_path: Path) -> None:
    looks, tables = tmp_path / "looks", Tables(str(tmp_path / "tables"))
    looks.mkdir()
    columns = {
        "topic": ["t", "t", "t"],
        "partition": pa.array([3, 4, 5], pa.int32()),
        "start_offset": [5, 5, 5],
        "end_offset": [90, 90, 90],
        "observed_at": pa.array([LOG_TS, None, LOG_TS.replace(year=9999)], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), looks / "1.parquet")
    job = LandEnds(spark, str(looks), "prod", tables, tables.checkpoint("ends"))
    job.start().awaitTermination()
    assert job.total == PollSummary(written=1, left_out=2)
    assert str(OffsetsSummary(looks=1, bad_looks=2)).endswith("; 1 log end, 2 left out")
    [row] = tables.read(spark, "ends").collect()
    assert row.asDict() == {
        "cluster": "prod",
        "topic": "t",
        "partition": 3,
        "start_offset": 5,
        "end_offset": 90,
        "observed_at": LOG_TS.replace(tzinfo=None),
        "observed_at_ms": LOG_TS_MS,
        "day": LOG_TS.date(),
    }


def test_a_wrong_directory_of_records_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="this directory does not exist"):
        RecordsFromParquet(str(tmp_path / "nowhere")).records(spark)
    with pytest.raises(NoRecords, match="this directory has no Parquet file"):
        RecordsFromParquet(str(tmp_path)).records(spark)
    pq.write_table(pa.table({"key": [b"k"], "value": [b"v"], "partition": [1]}), tmp_path / "1.parquet")
    with pytest.raises(NoRecords, match="its files lack topic, offset, timestamp"):
        RecordsFromParquet(str(tmp_path)).records(spark)
    records = records_table(_COMMITS, first=1)
    wide = records.set_column(3, "partition", records["partition"].cast(pa.int64()))
    pq.write_table(wide, tmp_path / "1.parquet")
    with pytest.raises(Py4JJavaError) as failed:
        RecordsFromParquet(str(tmp_path)).records(spark)
    said = why_it_failed(str(failed.value))
    assert "column: [partition], physicalType: INT64, logicalType: int" in said
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(NoRecords, match="its files cannot be read as Parquet"):
        RecordsFromParquet(str(tmp_path)).records(spark)


def _written_on(path: Path) -> date:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date()


def _json(partition: int, *told: object) -> str:
    names = ("version", "offset", "metadata", "commitTimestamp", "expireTimestamp")
    fields = ",".join(f'"{name}":{value}' for name, value in zip(names, told, strict=True))
    return f'{{"topic":"t","partition":{partition},"group":"g",{fields}}}'


def test_json_has_the_fields_of_2017_and_null_for_missing_values_of_a_tombstone(spark: SparkSession) -> None:
    with_expiry = (commit_key("g", "t", 2), commit_value(1, 5, metadata='ü"', expire_ts=1_746_950_500_000))
    decoded = decode_offsets(spark.createDataFrame(records_table([with_expiry, _TOMBSTONE], first=1)), "prod")
    told = [(row.key, row.value) for row in as_json(decoded).orderBy(F.desc("value")).collect()]
    assert told == [
        (with_expiry[0], _json(2, 1, 5, '"ü\\""', 1_746_950_400_000, 1_746_950_500_000)),
        (_TOMBSTONE[0], _json(1, "null", "null", "null", "null", "null")),
    ]
