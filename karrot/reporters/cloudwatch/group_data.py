"""Converts the newest state of a consumer group to CloudWatch data, in the chosen layouts."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from karrot.event import ABANDONED, Kind, Status
from karrot.eventlog.base import EventSummary, GroupState
from karrot.reporters.cloudwatch.data import Datum, dimension_value, metric_name
from karrot.settings.options import CloudWatch as Options
from karrot.settings.options import GroupMetricName, Layout

if TYPE_CHECKING:
    from types_boto3_cloudwatch.literals import StandardUnitType

CLUSTER = "Cluster"
CONSUMER_GROUP = "ConsumerGroup"
HEARTBEAT = "Heartbeat"
UNKNOWN, INCOMPLETE = "unknown", "incomplete"
"""The reasons why a value of a group is not sent. The reasons are label values, so they are stable."""


class GroupData(NamedTuple):
    """The data of a group. ``held`` counts the unsent values by reason. ``cut`` is the number of shortened names."""

    data: tuple[Datum, ...]
    held: Mapping[str, int]
    cut: int


def data_of(state: GroupState, options: Options) -> GroupData:
    """Make the data of a group. An unknown value is not sent, and never becomes 0."""
    summary, at_ms, resolution = state.summary, state.summary.observed_at_ms, options.resolution
    metrics = options.metrics if Layout.DIMENSIONS in options.layouts else ()
    legacy = (GroupMetricName.LAG,) if Layout.LEGACY in options.layouts else ()
    values = {metric: _VALUES[metric][1](summary) for metric in (*metrics, *legacy)}
    known = {metric: float(value) for metric, value in values.items() if value is not None}
    held = {UNKNOWN: len(values) - len(known)}
    if summary.complete is not None and summary.complete < options.min_complete:
        return GroupData((), held | {INCOMPLETE: len(known)}, 0)
    cluster, group, name = *map(dimension_value, state.key), metric_name(state.key.consumer)
    dimensions = ((CLUSTER, cluster.text), (CONSUMER_GROUP, group.text))
    units = ((metric, known[metric], _VALUES[metric][0]) for metric in metrics if metric in known)
    data = [Datum(metric.value, dimensions, value, unit, at_ms, resolution) for metric, value, unit in units]
    data += [Datum(name.text, (), known[metric], None, at_ms, resolution) for metric in legacy if metric in known]
    cut = (cluster.cut + group.cut if metrics else 0) + (name.cut if legacy else 0)
    return GroupData(tuple(data), held, cut)


def heartbeat(cluster: str, at_ms: int, options: Options) -> Datum:
    return Datum(HEARTBEAT, ((CLUSTER, dimension_value(cluster).text),), 1.0, "None", at_ms, options.resolution)


def _status(summary: EventSummary) -> int | None:
    """The numeric status of the group, or ``None`` for a status that a group cannot have."""
    if summary.status_text == ABANDONED:
        return Status.OK
    return None if summary.kind is Kind.UNKNOWN else summary.status


_VALUES: Mapping[GroupMetricName, tuple["StandardUnitType", Callable[[EventSummary], float | None]]] = {
    GroupMetricName.LAG: ("Count", lambda summary: summary.total_lag),
    GroupMetricName.SCALABLE_LAG: ("Count", lambda summary: summary.signals.scalable_lag),
    GroupMetricName.MAX_LAG: ("Count", lambda summary: summary.max_lag),
    GroupMetricName.LAG_SECONDS: ("Seconds", lambda summary: summary.signals.lag_seconds),
    GroupMetricName.SCALABLE_LAG_SECONDS: ("Seconds", lambda summary: summary.scalable_lag_age),
    GroupMetricName.STATUS: ("None", _status),
}
