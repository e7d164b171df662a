import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.burrow.payload import parse_webhook
from karrot.event import TEST_CLUSTERS, GroupKey, LagEvent, Source
from karrot.eventlog.base import StoredEvent
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, dimension_value, metric_name, why_refused
from karrot.reporters.cloudwatch.event_to_data import Mapped, data_of
from karrot.reporters.cloudwatch.options import GroupMetricName
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.burrow.recorded_bodies import expected_events, recorded_body
from support.reporters.reporter_context import options_of

AT_MS = make_event().observed_at_ms
DIMENSIONS = (("Cluster", "prod-eu"), ("ConsumerGroup", "orders-svc"))
ALL = ",".join(GroupMetricName)
HEARTBEAT = Datum("Heartbeat", (("Cluster", "prod-eu"),), 1.0, "None", AT_MS)


def mapped(event: LagEvent, **settings: str) -> Mapped:
    return data_of(StoredEvent("log", 1, AT_MS + 7, AT_MS, b"{}", event), options_of("cloudwatch", settings))


def of(settings: dict[str, str] | None = None, **overrides: Any) -> Mapped:
    return mapped(make_event(**overrides), **(settings or {}))


def datum(metric: str, value: float, unit: Any, **overrides: Any) -> Datum:
    return Datum(metric, DIMENSIONS, value, unit, AT_MS, **overrides)


def test_an_event_becomes_its_lag_at_the_time_it_was_observed_and_a_heartbeat() -> None:
    assert of() == Mapped(GroupKey("prod-eu", "orders-svc"), (datum("Lag", 11_020.0, "Count"),), HEARTBEAT)
    assert of().data == (datum("Lag", 11_020.0, "Count"), HEARTBEAT)


@pytest.mark.parametrize("cluster", TEST_CLUSTERS)
def test_a_test_is_not_sent_but_the_verdict_of_watch_on_a_cluster_of_this_name_is(cluster: str) -> None:
    assert of(cluster=cluster) == Mapped(GroupKey(cluster, "orders-svc"))
    assert len(of(cluster=cluster, source=Source.KAFKA).data) == 2


def test_a_posted_deletion_is_no_heartbeat() -> None:
    gone: dict[str, Any] = {"status_text": "NOTFOUND", "incident_id": None}
    assert of(**gone) == Mapped(GroupKey("prod-eu", "orders-svc"), gone=True)
    assert of(**gone, source=Source.KAFKA).data == (HEARTBEAT,)


def test_every_metric_has_its_unit() -> None:
    stuck = make_partition(status_text="STALL", current_lag=1_000)
    assert of({"metrics": ALL}, partitions=(stuck,)).group == (
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
    assert both.data == (datum("Status", 2.0, "None"), legacy, HEARTBEAT)


def test_high_resolution_applies_to_all_data() -> None:
    assert {each.resolution for each in of({"resolution": "1", "layout": "legacy,dimensions"}).data} == {1}


def test_a_lag_of_zero_is_sent_as_zero() -> None:
    assert of(total_lag=0, status_text="OK", incident_id=None).group == (datum("Lag", 0.0, "Count"),)


def test_unknown_values_are_counted_and_not_sent() -> None:
    nothing = of({"metrics": ALL}, total_lag=None, max_lag=None)
    assert nothing.group == (datum("Status", 2.0, "None"),)
    assert nothing.held == {"unknown": 5}
    assert nothing.heartbeat == HEARTBEAT


def test_an_unknown_lag_is_counted_once_in_both_layouts() -> None:
    assert of({"layout": "legacy,dimensions"}, total_lag=None).held == {"unknown": 1}


def test_a_deleted_group_gives_no_data_and_is_removed() -> None:
    gone = of({"metrics": ALL}, status_text="NOTFOUND", incident_id=None, source=Source.REST, total_lag=3)
    assert gone == Mapped(GroupKey("prod-eu", "orders-svc"), gone=True)


@pytest.mark.parametrize("status", ["STOP", "REWIND", "FINE", pytest.param("", id="an empty status")])
def test_an_invalid_status_is_not_sent_but_the_lag_is(status: str) -> None:
    odd = of({"metrics": "Lag,Status"}, status_text=status)
    assert odd.group == (datum("Lag", 11_020.0, "Count"),)
    assert odd.held == {"unknown": 1}


@pytest.mark.parametrize(("status", "code"), [("OK", 1.0), ("WARN", 2.0), ("ERR", 3.0)])
def test_the_status_is_burrows_code(status: str, code: float) -> None:
    assert of({"metrics": "Status"}, status_text=status).group == (datum("Status", code, "None"),)


@pytest.mark.parametrize("settings", [{"exclude": "^orders"}, {"include": "payments"}], ids=["exclude", "include"])
def test_an_excluded_group_gives_only_the_heartbeat_and_is_not_counted(settings: dict[str, str]) -> None:
    assert of(settings, total_lag=None) == Mapped(GroupKey("prod-eu", "orders-svc"), heartbeat=HEARTBEAT)


def test_burrows_own_group_gives_only_the_heartbeat() -> None:
    own: dict[str, Any] = {"consumer": "burrow-prod", "max_lag": make_partition(topic="__consumer_offsets")}
    assert of(**own).data == (HEARTBEAT,)
    assert of(**own | {"consumer": "my-burrow-prod"}).group
    assert of(consumer="burrow-prod").group


def test_watch_gives_a_heartbeat_like_burrow_but_resync_gives_none() -> None:
    lag = datum("Lag", 11_020.0, "Count")
    assert of(source=Source.KAFKA).data == of(source=Source.WEBHOOK).data == (lag, HEARTBEAT)
    assert of(source=Source.REST).data == (lag,)


@pytest.mark.parametrize(
    ("least", "complete", "held"),
    [("0", 0.0, {}), ("0.5", 0.5, {}), ("0.5", None, {}), ("0.5", 0.4, {"incomplete": 2})],
    ids=["no minimum", "at the minimum", "unknown", "below the minimum"],
)
def test_values_below_the_minimum_of_completeness_are_held_back_and_counted(
    least: str, complete: float | None, held: dict[str, int]
) -> None:
    made = of({"min_complete": least, "metrics": "Lag,Status"}, complete=complete)
    assert made.held == held
    assert (made.group == ()) == bool(held)
    assert made.heartbeat == HEARTBEAT


def test_unknown_values_of_an_incomplete_event_are_counted_separately() -> None:
    made = of({"min_complete": "0.5", "metrics": "Lag,Status"}, complete=0.1, total_lag=None)
    assert made.held == {"incomplete": 1, "unknown": 1}


def test_names_are_encoded_and_cut_names_are_counted_if_they_are_used() -> None:
    names: dict[str, Any] = {"cluster": "", "consumer": "grüppe" * 50}
    both = of({"layout": "dimensions,legacy"}, **names)
    lag, legacy = both.group
    assert lag.dimensions == (("Cluster", "(empty)"), ("ConsumerGroup", "gr%C3%BCppe" * 50))
    assert len(legacy.metric) <= 255
    assert both.heartbeat is not None
    assert both.heartbeat.dimensions == (("Cluster", "(empty)"),)
    assert (both.cut, of(**names).cut) == (1, 0)


@pytest.mark.parametrize("name", sorted(name for name, told in expected_events().items() if told["http_status"] == 202))
def test_a_recorded_body_of_burrow_gives_its_numbers(name: str) -> None:
    told = expected_events()[name]
    made = mapped(parse_webhook(recorded_body(name), observed_at_ms=AT_MS), layout="legacy,dimensions")
    cluster, group = ("Cluster", told["cluster"]), ("ConsumerGroup", dimension_value(told["group"]).text)
    lag = float(told["total_lag"])
    heartbeat = Datum("Heartbeat", (cluster,), 1.0, "None", AT_MS)
    sent = (
        Datum("Lag", (cluster, group), lag, "Count", AT_MS),
        Datum(metric_name(told["group"]).text, (), lag, None, AT_MS),
        heartbeat,
    )
    assert made.data == ((heartbeat,) if "burrow_self_group" in name else sent)


@given(event_strategy(), st.sampled_from(["0", "0.7"]))
def test_cloudwatch_accepts_the_data_of_any_event(event: LagEvent, least: str) -> None:
    made = mapped(event, metrics=ALL, layout="legacy,dimensions", min_complete=least)
    assert {why_refused(each, event.observed_at_ms) for each in made.data} <= {None}
    assert all(math.isfinite(each.value) and each.value >= 0 for each in made.data)
    assert {each.timestamp_ms for each in made.data} <= {event.observed_at_ms}
    assert all(count > 0 for count in made.held.values())
