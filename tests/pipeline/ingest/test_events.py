import types
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)
from pyspark.testing import assertSchemaEqual

from karrot.event import LagEvent
from karrot.event_json_line import EventLine, PartitionLine, decode
from karrot.pipeline.ingest.events import SequenceRange, events, in_order, overlap, partitions, read_lines
from karrot.pipeline.schemas_and_conversions import EVENTS, LINE, PARTITION_LINE, PARTITIONS, with_day
from support.burrow.lag_events import event_strategy
from support.pipeline.archive_segments import segment_line
from support.pipeline.event_rows import frame_of_rows

_TEXT = StructType().add("value", StringType())
_MOMENTS = range(1, 253_402_300_800_000)


def _holds(column: DataType, told: Any) -> bool:
    """Return whether a column can hold every value of a field of the line's type."""
    if get_origin(told) in (Union, types.UnionType):
        return all(_holds(column, each) for each in get_args(told) if each is not type(None))
    if get_origin(told) is Literal:
        return isinstance(column, StringType if isinstance(get_args(told)[0], str) else LongType)
    if isinstance(column, ArrayType):
        return get_args(told)[0] is PartitionLine and column.elementType == PARTITION_LINE
    if told is PartitionLine:
        return column == PARTITION_LINE
    if told is int:
        return isinstance(column, LongType | IntegerType | DoubleType)
    return isinstance(column, DoubleType if told is float else StringType)


@pytest.mark.parametrize(("schema", "line"), [(LINE, EventLine), (PARTITION_LINE, PartitionLine)])
def test_the_schema_of_a_line_matches_the_archive(schema: StructType, line: type[msgspec.Struct]) -> None:
    hints = get_type_hints(line)
    assert schema.fieldNames() == list(line.__struct_fields__)
    assert [field.name for field in schema if not _holds(field.dataType, hints[field.name])] == []


def _lag(lag: int | None) -> int | None:
    return None if lag is None or lag >= 2**53 else lag


def _moment(at_ms: int | None) -> int | None:
    # Python searches a range from end to end for anything but a number.
    return at_ms if at_ms is not None and at_ms in _MOMENTS else None


def _event_row(line: EventLine) -> dict[str, Any]:
    """Return the row that the table must have for a line."""
    told = {name: getattr(line, name) for name in EVENTS.fieldNames() if hasattr(line, name)}
    worst = line.max_partition
    return told | {
        "source": line.source.value,
        "kind": line.kind.value,
        "received_at": _moment(line.received_at_ms),
        "observed_at": _moment(line.observed_at_ms),
        "incident_start": _moment(line.incident_start_ms),
        "total_lag": _lag(line.total_lag),
        "max_lag": _lag(line.max_lag),
        "scalable_lag": _lag(line.scalable_lag),
        "max_lag_topic": worst.topic if worst else None,
        "max_lag_partition": worst.partition if worst else None,
        "max_lag_owner": worst.owner if worst else None,
        "max_lag_committed": worst.end_offset if worst else None,
        "max_lag_first_end": _first_end(worst) if worst else None,
    }


def _first_end(worst: PartitionLine) -> int | None:
    start_lag = _lag(worst.start_lag)
    if worst.start_offset is None or start_lag is None:
        return None
    end = worst.start_offset + start_lag
    return end if -(2**63) <= end < 2**63 else None


def _partition_row(line: EventLine, one: PartitionLine) -> dict[str, Any]:
    event = _event_row(line)
    of_event = ("event_id", "log_id", "seq", "received_at", "observed_at", "source", "cluster", "consumer")
    return (
        {name: event[name] for name in of_event}
        | {name: getattr(one, name) for name in PARTITION_LINE.fieldNames()}
        | {
            "start_ts": _moment(one.start_ts_ms),
            "start_lag": _lag(one.start_lag),
            "end_ts": _moment(one.end_ts_ms),
            "end_lag": _lag(one.end_lag),
            "current_lag": _lag(one.current_lag),
        }
    )


def _any_events(count: int) -> list[LagEvent]:
    """Draw events of every kind first, so that one query reads all of them."""
    drawn: list[LagEvent] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(event_strategy())
    def draw(event: LagEvent) -> None:
        drawn.append(event)

    draw()
    return drawn


def _collected(table: DataFrame) -> list[dict[str, Any]]:
    """Return the rows in order, with times as epoch milliseconds."""
    told = [
        F.unix_millis(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in table.drop("day").schema
    ]
    return [row.asDict() for row in table.orderBy("seq").select(*told).collect()]


def test_the_tables_have_the_values_of_any_line(spark: SparkSession) -> None:
    written = [segment_line(seq, event) for seq, event in enumerate(_any_events(20))]
    lines = [decode(line) for line in written]
    arrived = frame_of_rows(spark, _TEXT, [{"value": line.decode().removesuffix("\n")} for line in written])
    read = read_lines(
        arrived.select(
            "value",
            F.lit("a").alias("path"),
            F.lit(None).cast("bigint").alias("offset"),
            F.lit(datetime(2025, 5, 12, tzinfo=UTC)).alias("written_at"),
        )
    )
    event_table, partition_table = events(read), partitions(read)
    assertSchemaEqual(event_table.schema, with_day(EVENTS), ignoreNullable=True)
    assertSchemaEqual(partition_table.schema, with_day(PARTITIONS), ignoreNullable=True)

    expected = map(_event_row, lines)
    assert [pair for pair in zip(_collected(event_table), expected, strict=True) if pair[0] != pair[1]][:1] == []
    listed = [_partition_row(line, one) for line in lines for one in line.partitions]
    assert [pair for pair in zip(_collected(partition_table), listed, strict=True) if pair[0] != pair[1]][:1] == []


_LINES = (
    StructType().add("case", StringType()).add("number", LongType()).add("line", StructType().add("seq", LongType()))
)
_LEAST = -(2**63)


def _some_spans() -> st.SearchStrategy[list[SequenceRange]]:
    numbers = st.lists(st.integers(0, 20), min_size=2, max_size=2).map(sorted)
    return st.lists(st.builds(lambda log, ends: SequenceRange(log, *ends), st.sampled_from("ab"), numbers), max_size=6)


@given(_some_spans())
def test_ranges_overlap_if_two_of_a_log_share_a_number(several: list[SequenceRange]) -> None:
    held = [{(log, number) for number in range(first, last + 1)} for log, first, last in several]
    assert overlap(several) == any(one & other for one, other in combinations(held, 2))


def test_lines_have_no_repeats_for_certain_if_their_numbers_match_their_order(spark: SparkSession) -> None:
    cases = {
        "whole": ([0, 1, 2], [7, 8, 9], True),
        "without a bad line": ([0, 2, 3], [7, 9, 10], True),
        "one line": ([5], [2**63 - 1], True),
        "with a gap": ([0, 1, 2], [7, 8, 10], False),
        "twice": ([0, 1, 2], [7, 8, 8], False),
        "twice what no difference tells": ([0, 1, 2], [7, _LEAST, _LEAST], False),
    }
    lines = [
        {"case": case, "number": number, "line": {"seq": seq}}
        for case, (numbers, seqs, _) in cases.items()
        for number, seq in zip(numbers, seqs, strict=True)
    ]
    found = frame_of_rows(spark, _LINES, lines).groupBy("case").agg(in_order().alias("in_order")).collect()
    assert {row.case: row.in_order for row in found} == {case: told for case, (_, _, told) in cases.items()}
