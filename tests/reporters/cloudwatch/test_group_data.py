import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow.payload import parse_webhook
from karrot.event import ABANDONED, GroupKey, LagEvent
from karrot.eventlog.base import GroupState, IncidentState
from karrot.eventlog.next_group_state import summarize
from karrot.reporters.cloudwatch.data import Datum, dimension_value, metric_name
from karrot.reporters.cloudwatch.group_data import GroupData, data_of
from karrot.settings.options import GroupMetricName
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.burrow.recorded_bodies import expected_events, recorded_body
from support.reporters.cloudwatch_datum import would_be_refused
from support.reporters.reporter_context import options_of

AT_MS = make_event().observed_at_ms
DIMENSIONS = (("Cluster", "prod-eu"), ("ConsumerGroup", "orders-svc"))
ALL = ",".join(GroupMetricName)


def mapped(event: LagEvent, **settings: str) -> GroupData:
    """The data of a group after an event."""
    summary = summarize(event, AT_MS + 7)
    state = GroupState(GroupKey(event.cluster, event.consumer), 1, AT_MS, summary, IncidentState())
    return data_of(state, options_of("cloudwatch", settings))


def of(settings: dict[str, str] | None = None, **overrides: Any) -> GroupData:
    return mapped(make_event(**overrides), **(settings or {}))


def datum(metric: str, value: float, unit: Any, **overrides: Any) -> Datum:
    return Datum(metric, DIMENSIONS, value, unit, AT_MS, **overrides)


def test_a_group_has_its_lag_at_the_time_it_was_observed() -> None:
    assert of() == GroupData((datum("Lag", 11_020.0, "Count"),), {"unknown": 0}, 0)


def test_an_abandoned_group_is_ok() -> None:
    left = make_partition(status_text=ABANDONED)
    assert of({"metrics": "Status"}, status_text="OK", incident_id=None, partitions=(left,)).data[0].value == 1


def test_every_metric_has_its_unit() -> None:
    stuck = make_partition(status_text="STALL", current_lag=1_000)
    assert of({"metrics": ALL}, partitions=(stuck,)).data == (
        datum("Lag", 11_020.0, "Count"),
        datum("ScalableLag", 10_020.0, "Count"),
        datum("MaxLag", 10_440.0, "Count"),
        datum("LagSeconds", 98.006, "Seconds"),
        datum("ScalableLagSeconds", 89.275, "Seconds"),
        datum("Status", 2.0, "None"),
    )


def test_the_legacy_layout_has_only_the_lag_under_the_name_of_the_group() -> None:
    legacy = Datum("orders-svc", (), 11_020.0, None, AT_MS)
    assert of({"layout": "legacy"}).data == of({"layout": "legacy", "metrics": "Status"}).data == (legacy,)


def test_both_layouts_can_be_sent_together() -> None:
    legacy = Datum("orders-svc", (), 11_020.0, None, AT_MS)
    both = of({"layout": "legacy,dimensions", "metrics": "Status"})
    assert both.data == (datum("Status", 2.0, "None"), legacy)


def test_high_resolution_applies_to_all_data() -> None:
    assert {each.resolution for each in of({"resolution": "1", "layout": "legacy,dimensions"}).data} == {1}


def test_a_lag_of_zero_is_sent_as_zero() -> None:
    assert of(total_lag=0, status_text="OK", incident_id=None).data == (datum("Lag", 0.0, "Count"),)


def test_unknown_values_are_counted_and_not_sent() -> None:
    nothing = of({"metrics": ALL}, total_lag=None, max_lag=None)
    assert nothing.data == (datum("Status", 2.0, "None"),)
    assert nothing.held == {"unknown": 5}


def test_an_unknown_lag_is_counted_once_in_both_layouts() -> None:
    assert of({"layout": "legacy,dimensions"}, total_lag=None).held == {"unknown": 1}


@pytest.mark.parametrize("status", ["STOP", "REWIND", "FINE", pytest.param("", id="an empty status")])
def test_an_invalid_status_is_not_sent_but_the_lag_is(status: str) -> None:
    odd = of({"metrics": "Lag,Status"}, status_text=status)
    assert odd.data == (datum("Lag", 11_020.0, "Count"),)
    assert odd.held == {"unknown": 1}


@pytest.mark.parametrize(("status", "code"), [("OK", 1.0), ("WARN", 2.0), ("ERR", 3.0)])
def test_the_status_is_burrows_code(status: str, code: float) -> None:
    assert of({"metrics": "Status"}, status_text=status).data == (datum("Status", code, "None"),)


@pytest.mark.parametrize(
    ("least", "complete", "held"),
    [("0", 0.0, {}), ("0.5", 0.5, {}), ("0.5", None, {}), ("0.5", 0.4, {"incomplete": 2})],
    ids=["no minimum", "at the minimum", "unknown", "below the minimum"],
)
def test_values_below_the_minimum_of_completeness_are_held_back_and_counted(
    least: str, complete: float | None, held: dict[str, int]
) -> None:
    made = of({"min_complete": least, "metrics": "Lag,Status"}, complete=complete)
    assert {why: many for why, many in made.held.items() if many} == held
    assert (made.data == ()) == bool(held)


def test_unknown_values_of_an_incomplete_event_are_counted_separately() -> None:
    made = of({"min_complete": "0.5", "metrics": "Lag,Status"}, complete=0.1, total_lag=None)
    assert made.held == {"incomplete": 1, "unknown": 1}


def test_names_are_encoded_and_cut_names_are_counted_if_they_are_used() -> None:
    names: dict[str, Any] = {"cluster": "", "consumer": "grüppe" * 50}
    both = of({"layout": "dimensions,legacy"}, **names)
    lag, legacy = both.data
    assert lag.dimensions == (("Cluster", "(empty)"), ("ConsumerGroup", "gr%C3%BCppe" * 50))
    assert len(legacy.metric) <= 255
    assert (both.cut, of(**names).cut) == (1, 0)


@pytest.mark.parametrize("name", sorted(name for name, told in expected_events().items() if told["http_status"] == 202))
def test_a_recorded_body_of_burrow_gives_its_numbers(name: str) -> None:
    told = expected_events()[name]
    made = mapped(parse_webhook(recorded_body(name), observed_at_ms=AT_MS), layout="legacy,dimensions")
    cluster, group = ("Cluster", told["cluster"]), ("ConsumerGroup", dimension_value(told["group"]).text)
    lag = float(told["total_lag"])
    assert made.data == (
        Datum("Lag", (cluster, group), lag, "Count", AT_MS),
        Datum(metric_name(told["group"]).text, (), lag, None, AT_MS),
    )


@given(event_strategy(), st.sampled_from(["0", "0.7"]))
def test_cloudwatch_accepts_the_data_of_any_group(event: LagEvent, least: str) -> None:
    made = mapped(event, metrics=ALL, layout="legacy,dimensions", min_complete=least)
    assert all(math.isfinite(each.value) and each.value >= 0 for each in made.data)
    assert {each.timestamp_ms for each in made.data} <= {event.observed_at_ms}
    assert would_be_refused([replace(each, timestamp_ms=AT_MS) for each in made.data], AT_MS) == [] or not made.data
    assert all(count >= 0 for count in made.held.values())
