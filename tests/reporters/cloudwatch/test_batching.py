from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.reporters.cloudwatch.batching import MAX_BYTES, MAX_DATA, batches, envelope
from karrot.reporters.cloudwatch.datum import Datum
from support.reporters.cloudwatch_datum import datum_strategy, make_datum, request_body


@pytest.mark.parametrize(("data", "calls"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (2000, 2), (20_000, 20)])
def test_small_data_need_a_call_per_thousand(data: int, calls: int) -> None:
    assert len(list(batches([make_datum()] * data, "Karrot"))) == calls


def test_large_data_are_split_by_their_bytes() -> None:
    large = make_datum(dimensions=tuple((f"Name{number}", "x" * 1024) for number in range(30)))
    made = list(batches([large] * 100, "Karrot"))
    assert [len(batch) for batch in made] == [28, 28, 28, 16]
    assert all(len(request_body("Karrot", batch)) <= MAX_BYTES for batch in made)


def test_a_datum_that_fills_a_request_goes_alone() -> None:
    huge = make_datum(dimensions=(("Name", "x" * 2 * MAX_BYTES),))
    assert list(batches([make_datum(), huge, make_datum()], "Karrot")) == [[make_datum()], [huge], [make_datum()]]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(datum_strategy(), st.integers(1, 800)), max_size=3), st.sampled_from(["Karrot", "n" * 255]))
def test_no_batch_exceeds_a_limit_and_none_could_be_spared(repeated: list[tuple[Datum, int]], namespace: str) -> None:
    data = [datum for datum, times in repeated for _ in range(times)]
    made = list(batches(data, namespace))
    assert [datum for batch in made for datum in batch] == data
    assert all(0 < len(batch) <= MAX_DATA for batch in made)
    assert all(len(request_body(namespace, batch)) <= MAX_BYTES for batch in made)
    for batch, following in pairwise(made):
        full = envelope(namespace) + sum(datum.size() for datum in [*batch, following[0]])
        assert len(batch) == MAX_DATA or full > MAX_BYTES
