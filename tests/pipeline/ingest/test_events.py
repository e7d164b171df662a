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
from karrot.event_json_line import EventLine, PartitionLine
from karrot.pipeline.ingest.events import SequenceRange, events, in_order, overlap, partitions, read_lines
from karrot.pipeline.schemas_and_conversions import EVENTS, LINE, PARTITION_LINE, PARTITIONS, with_day
from support.burrow.lag_events import event_strategy
from support.pipeline.archive_segments import segment_line
from support.pipeline.event_rows import frame_of_rows
from support.pipeline.expected_tables.archive_lines import event_of, events_rows, judged, partitions_rows

_TEXT = StructType().add("value", StringType())


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
    expected = [event_of(judged(line.removesuffix(b"\n"), 2**62)[1]) for line in written]
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

    for table, rows in ((event_table, events_rows(expected)), (partition_table, partitions_rows(expected))):
        of_table = [{name: told for name, told in row.items() if name != "day"} for row in rows]
        assert [pair for pair in zip(_collected(table), of_table, strict=True) if pair[0] != pair[1]][:1] == []


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
