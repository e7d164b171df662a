"""How observations are counted; `tests/web/test_webhook.py` and `tests/test_resync.py` test the rest of the intake."""

from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow.payload import to_wire
from karrot.event import Source
from karrot.eventlog.base import Appended, UnstorableError
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import Intake, observe
from karrot.telemetry import EVENT_HANDLING_SECONDS
from support.burrow.lag_events import make_event
from support.manual_clock import ManualClock


class Refusing(MemoryEventLog):
    """A log whose database refuses a value of each event."""

    def append(self, *_: object, **__: object) -> Appended:
        raise UnstorableError("cannot be written: the text of the database")


def test_a_verdict_that_the_database_refuses_is_kept_and_the_text_of_the_database_is_not_shown() -> None:
    log = Refusing(ManualClock())
    event = make_event(source=Source.REST)
    assert Intake(log, ManualClock()).accept(event) is None
    [reject] = log.rejects()
    assert (reject.code, reject.source, reject.body) == ("invalid_field", Source.REST, to_wire(event))
    assert reject.detail == "The database of the event log refuses a value of this event."
    assert [(each.name, each.value) for each in log.counters()] == [("karrot_events_rejected_total", 1)]


def test_an_event_is_counted_once_also_for_a_reporter_that_is_asked_for_it() -> None:
    log = MemoryEventLog(ManualClock())
    Intake(log, ManualClock(), pull_reporters=("prometheus",)).accept(make_event(source=Source.REST))
    counted = {(each.name, each.labels): each.value for each in log.counters()}
    assert counted["karrot_events_accepted_total", (("source", "rest"),)] == 1
    assert counted["karrot_reporter_events_total", (("reporter", "prometheus"),)] == 1


def test_an_observation_is_one_count_in_its_bucket_and_its_value_in_the_sum() -> None:
    log = MemoryEventLog(ManualClock())
    for seconds in (0.03125, 0.046875, 0.5, 7):
        observe(log.count, seconds)
    assert {(name, labels): value for name, labels, value in log.counters()} == {
        ("karrot_event_handling_seconds_bucket", (("le", "0.05"),)): 2,
        ("karrot_event_handling_seconds_bucket", (("le", "0.5"),)): 1,
        ("karrot_event_handling_seconds_bucket", (("le", "+Inf"),)): 1,
        ("karrot_event_handling_seconds_sum", ()): 7.578125,
    }


@given(st.floats(0, 1e6))
def test_every_observation_lands_in_the_first_bucket_that_holds_it(seconds: float) -> None:
    counted: list[str] = []

    def count(name: str, _by: float, **labels: str) -> None:
        if name.endswith("_bucket"):
            counted.append(labels["le"])

    observe(count, seconds)
    edges = EVENT_HANDLING_SECONDS.edges
    assert counted == [next(edge for edge in edges if seconds <= float(edge))]
