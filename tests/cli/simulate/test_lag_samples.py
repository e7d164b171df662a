"""Samples of a recorded lag are read from CSV."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.autoscaling.arrival_rate import LagSample
from karrot.cli.simulate.lag_samples import samples_of_csv


def test_csv_times_are_iso_or_epoch() -> None:
    text = "time,lag\n2026-11-17T09:30:00Z,5\n1794907860,6\n1794907920000,7,12.5\n2026-11-17 10:33+01:00, 8\n\n"
    start = 1_794_907_800
    assert samples_of_csv(text) == [
        LagSample(start, 5),
        LagSample(start + 60, 6),
        LagSample(start + 120, 7, 12.5),
        LagSample(start + 180, 8),
    ]


def test_csv_needs_no_heading_and_an_empty_lag_is_unknown() -> None:
    assert samples_of_csv("0,5\n60,\n120,7\n") == [LagSample(0, 5), LagSample(120, 7)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("time,lag\nnoon,5", "line 2: 'noon' is not a time, such as 2026-11-17T09:30:00Z or epoch seconds"),
        ("0,5\n60,many", "line 2: 'many' is not a number"),
        ("0,5\n60,-1", "line 2: -1 is not a number of messages: it must be 0 or larger"),
        ("0,nan", "line 1: nan is not a number of messages: it must be 0 or larger"),
        ("inf,5", "line 1: inf is not a time"),
        ("0,5\n60", "line 2: the line needs a time and a lag, with a comma between them"),
        ("0,5,fast", "line 1: 'fast' is not a number"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the whole sentence is compared)
        samples_of_csv(text)
    assert str(raised.value) == sentence


def read(text: str) -> list[LagSample] | str:
    try:
        return samples_of_csv(text)
    except ValueError as error:
        return str(error)


@given(text=st.text(st.sampled_from("0123456789,.-:TZ e\n\"'tlag"), max_size=80))
def test_any_text_gives_samples_or_one_sentence(text: str) -> None:
    told = read(text)
    assert told.startswith("line ") if isinstance(told, str) else all(sample.lag >= 0 for sample in told)
