import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot import telemetry
from karrot.burrow.wire import Code
from karrot.event import Source
from karrot.eventlog.memory import MemoryEventLog
from karrot.telemetry import METRICS, Histogram, Metric
from support.manual_clock import ManualClock


def test_every_metric_is_declared_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"karrot(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert re.fullmatch(r"[A-Z][^\n\\]+\.", metric.help)
    assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_only_counters_with_one_label_declare_its_values(metric: Metric) -> None:
    assert not metric.known or (metric.kind == "counter" and len(metric.labels) == 1)


def test_every_source_and_every_code_of_a_parser_is_declared() -> None:
    assert set(telemetry.EVENTS_ACCEPTED.known) == {source.value for source in Source}
    assert set(telemetry.EVENTS_REJECTED.known) >= set(get_args(Code))


def test_an_observation_is_one_count_in_its_bucket_and_its_value_in_the_sum() -> None:
    histogram = Histogram("karrot_wait_seconds", "histogram", "Waiting.", bounds=(0.1, 1.0))
    log = MemoryEventLog(ManualClock())
    for seconds in (0.05, 0.1, 0.5, 7):
        histogram.observe(log.count, seconds)
    assert {(name, labels): value for name, labels, value in log.counters()} == {
        ("karrot_wait_seconds_bucket", (("le", "0.1"),)): 2,
        ("karrot_wait_seconds_bucket", (("le", "1.0"),)): 1,
        ("karrot_wait_seconds_bucket", (("le", "+Inf"),)): 1,
        ("karrot_wait_seconds_sum", ()): 7.65,
    }


@given(st.floats(0, 1e6))
def test_every_observation_lands_in_the_first_bucket_that_holds_it(seconds: float) -> None:
    counted: list[str] = []

    def count(name: str, _by: float, **labels: str) -> None:
        if name.endswith("_bucket"):
            counted.append(labels["le"])

    telemetry.EVENT_HANDLING_SECONDS.observe(count, seconds)
    edges = telemetry.EVENT_HANDLING_SECONDS.edges
    assert counted == [next(edge for edge in edges if seconds <= float(edge))]
