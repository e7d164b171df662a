"""How observations are counted; `tests/web/test_webhook.py` and `tests/test_resync.py` test the rest of the intake."""

from hypothesis import given
from hypothesis import strategies as st

from karrot.eventlog.memory import MemoryEventLog
from karrot.intake import observe
from karrot.telemetry import EVENT_HANDLING_SECONDS, Histogram
from support.manual_clock import ManualClock


def test_an_observation_is_one_count_in_its_bucket_and_its_value_in_the_sum() -> None:
    histogram = Histogram("karrot_wait_seconds", "histogram", "Waiting.", bounds=(0.1, 1.0))
    log = MemoryEventLog(ManualClock())
    for seconds in (0.05, 0.1, 0.5, 7):
        observe(log.count, histogram, seconds)
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

    observe(count, EVENT_HANDLING_SECONDS, seconds)
    edges = EVENT_HANDLING_SECONDS.edges
    assert counted == [next(edge for edge in edges if seconds <= float(edge))]
