"""The search for the bad data of a rejected batch finds them in few calls."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.aws.errors import Fault, FaultKind
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum
from karrot.reporters.cloudwatch.sender import Flush, Rejected, TooLarge, Verdict
from support.reporters.cloudwatch_sender_rig import lag_data

Naming = Callable[[list[int]], tuple[int, ...]]
NAMINGS: dict[str, Naming] = {
    "none": lambda _: (),
    "all": tuple,
    "the first": lambda bad: (bad[0],),
    "all, counted from one less": lambda bad: tuple(position - 1 for position in bad),
    "all, counted from one more": lambda bad: tuple(position + 1 for position in bad),
}


def run(batch: list[Datum], poison: set[Datum], naming: Naming, most: int) -> tuple[list[Datum], list[Datum], int]:
    """Return delivered, refused and calls for a CloudWatch that accepts at most this number of data and no bad one."""
    calls = 0
    bad_values = {datum.value for datum in poison}

    def call(part: list[Datum]) -> Verdict | None:
        nonlocal calls
        calls += 1
        bad = [position for position, datum in enumerate(part) if datum.value in bad_values]
        if len(part) > most:
            return TooLarge("413")
        return Rejected("bad", naming(bad)) if bad else None

    flush = Flush(call, search_calls=10_000)
    flush.settle(batch)
    assert (flush.kept, flush.fault) == ([], None)
    return flush.delivered, [refusal.datum for refusal in flush.refused], calls


@settings(deadline=None)
@given(
    st.sets(st.integers(0, 39)),
    st.sampled_from(sorted(NAMINGS)),
    st.integers(1, 40),
)
def test_bad_data_are_refused_and_all_others_delivered_for_any_error_message(
    bad: set[int], naming: str, most: int
) -> None:
    batch = lag_data(40)
    poison = {batch[position] for position in bad}
    delivered, refused, _ = run(batch, poison, NAMINGS[naming], most)
    assert sorted(datum.value for datum in delivered + refused) == [datum.value for datum in batch]
    assert set(refused) == poison


@pytest.mark.parametrize("naming", sorted(NAMINGS))
def test_one_bad_datum_among_a_thousand_is_found_in_twenty_calls_at_any_position(naming: str) -> None:
    batch = lag_data(1000)
    extra = [run(batch, {datum}, NAMINGS[naming], 1000)[2] - 1 for datum in batch]
    assert max(extra) <= (20 if "counted" not in naming else 22)


def test_any_number_of_named_members_takes_two_calls() -> None:
    batch = lag_data(1000)
    delivered, refused, calls = run(batch, set(batch[::100]), NAMINGS["all"], 1000)
    assert (len(delivered), refused, calls) == (990, batch[::100], 3)


def test_undecided_data_are_kept_in_order_after_a_fault() -> None:
    batch = lag_data(8)
    parts: list[list[Datum]] = []
    answers: list[Verdict | None] = [Rejected("bad"), None, Fault(FaultKind.UNAVAILABLE, "gone")]

    def call(part: list[Datum]) -> Verdict | None:
        parts.append(part)
        return answers.pop(0)

    flush = Flush(call)
    flush.settle(batch)
    assert parts == [batch, batch[:4], batch[4:6]]  # the other half must be bad, so it is not sent as a whole
    assert (flush.delivered, flush.kept) == (batch[:4], batch[4:])
