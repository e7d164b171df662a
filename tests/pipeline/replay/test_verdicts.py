import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.event import Status
from karrot.pipeline.replay.rules import RuleSet
from karrot.pipeline.verdicts import Span
from support.replayed import Commit, End, Stream, by_arrays, by_the_model

CASES = json.loads((Path(__file__).parents[2] / "data/burrow/evaluation_cases.json").read_text())
SPAN = Span(1_000, 1_120, 10)

times = st.integers(995_000, 1_115_000)
offsets = st.integers(0, 12)
timestamps = st.one_of(times, st.integers(0, 2_000_000), st.sampled_from([0, 2**60]))
ends = st.lists(st.builds(End, times, offsets), max_size=12, unique_by=lambda end: end.observed_ms)
rule_sets = st.builds(
    RuleSet,
    name=st.just("r"),
    intervals=st.integers(1, 6),
    allowed_lag=st.sampled_from([0, 0, 1, 3]),
    min_distance=st.sampled_from([0, 0, 1, 5, 30]),
    minimum_complete=st.sampled_from([0, 0.5, 1 / 3, 1]),
)


@st.composite
def commits(draw: st.DrawFn) -> list[Commit]:
    seen = sorted(draw(st.lists(times, max_size=25)))
    in_order = draw(st.booleans())
    orders = range(len(seen)) if in_order else draw(st.permutations([n // 2 for n in range(len(seen))]))
    stamps = draw(st.lists(timestamps, min_size=len(seen), max_size=len(seen))) if draw(st.booleans()) else seen
    return [Commit(at, order, draw(offsets), stamp) for at, order, stamp in zip(seen, orders, stamps, strict=True)]


streams = st.builds(
    Stream, commits().filter(bool), ends.map(lambda found: sorted(found, key=lambda end: end.observed_ms))
)


@given(st.lists(streams, min_size=1, max_size=4), st.lists(rule_sets, min_size=1, max_size=3))
def test_arrays_give_the_verdicts_of_the_reference_model(given_streams: list[Stream], sets: list[RuleSet]) -> None:
    assert by_arrays(given_streams, sets, SPAN) == [
        [by_the_model(stream, each, SPAN) for stream in given_streams] for each in sets
    ]
