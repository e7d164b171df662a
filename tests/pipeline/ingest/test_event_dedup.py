from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from karrot.pipeline.ingest.event_dedup import SequenceRange, in_order, overlap
from support.pipeline.event_rows import frame_of_rows

_LINES = (
    StructType().add("case", StringType()).add("number", LongType()).add("line", StructType().add("seq", LongType()))
)
_LEAST = -(2**63)


def _some_spans() -> st.SearchStrategy[list[SequenceRange]]:
    numbers = st.lists(st.integers(0, 20), min_size=2, max_size=2).map(sorted)
    return st.lists(st.builds(lambda log, ends: SequenceRange(log, *ends), st.sampled_from("ab"), numbers), max_size=6)


@given(_some_spans())
def test_spans_overlap_if_two_of_a_log_share_a_number(several: list[SequenceRange]) -> None:
    held = [{(log, number) for number in range(first, last + 1)} for log, first, last in several]
    assert overlap(several) == any(one & other for one, other in combinations(held, 2))


def test_only_what_is_numbered_as_its_lines_are_is_known_to_be_there_once(spark: SparkSession) -> None:
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
