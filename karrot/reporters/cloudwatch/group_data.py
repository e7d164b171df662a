"""Converts the newest state of a consumer group to CloudWatch data, in each layout."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from karrot.event import ABANDONED, Kind, Status
from karrot.eventlog.base import EventSummary, GroupState
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, Encoded, dimension_value, metric_name
from karrot.settings.options import CloudWatch as Options
from karrot.settings.options import GroupMetricName, Layout

if TYPE_CHECKING:
    from types_boto3_cloudwatch.literals import StandardUnitType

CLUSTER = "Cluster"
CONSUMER_GROUP = "ConsumerGroup"
HEARTBEAT = "Heartbeat"


class Held(StrEnum):
    """Why a value of a group is not sent. The values are stable: they are label values."""

    UNKNOWN = "unknown"
    INCOMPLETE = "incomplete"


class GroupData(NamedTuple):
    """The data of a group. ``held`` counts the values that are not sent. ``cut`` is the number of shortened names."""

    data: tuple[Datum, ...]
    held: Mapping[Held, int]
    cut: int


def data_of(state: GroupState, options: Options) -> GroupData:
    """The data of a group. An unknown value is not sent. A zero is sent only if the verdict has a zero."""
    summary, configured = state.summary, _configured(options)
    values = {metric: _VALUES[metric].value(summary) for metric in configured}
    known = {metric: float(value) for metric, value in values.items() if value is not None}
    held = {Held.UNKNOWN: len(values) - len(known)}
    if summary.complete is not None and summary.complete < options.min_complete:
        return GroupData((), held | {Held.INCOMPLETE: len(known)}, 0)
    cluster, group = map(dimension_value, state.key)
    legacy = metric_name(state.key.consumer) if Layout.LEGACY in options.layouts else Encoded("", cut=False)

    def laid_out() -> Iterator[Datum]:
        at_ms, resolution = summary.observed_at_ms, options.resolution
        if Layout.DIMENSIONS in options.layouts:
            dimensions = ((CLUSTER, cluster.text), (CONSUMER_GROUP, group.text))
            for metric in options.metrics:
                if metric in known:
                    yield Datum(metric.value, dimensions, known[metric], _VALUES[metric].unit, at_ms, resolution)
        if Layout.LEGACY in options.layouts and GroupMetricName.LAG in known:
            yield Datum(legacy.text, (), known[GroupMetricName.LAG], None, at_ms, resolution)

    cuts = {Layout.DIMENSIONS: cluster.cut + group.cut, Layout.LEGACY: int(legacy.cut)}
    return GroupData(tuple(laid_out()), held, sum(cuts[layout] for layout in options.layouts))


def heartbeat(cluster: str, at_ms: int, options: Options) -> Datum:
    return Datum(HEARTBEAT, ((CLUSTER, dimension_value(cluster).text),), 1.0, "None", at_ms, options.resolution)


def _configured(options: Options) -> set[GroupMetricName]:
    legacy = {GroupMetricName.LAG} if Layout.LEGACY in options.layouts else set()
    return legacy | set(options.metrics) if Layout.DIMENSIONS in options.layouts else legacy


def _status(summary: EventSummary) -> int | None:
    """The number of the group's status. ``None`` for a status that a group cannot have."""
    if summary.status_text == ABANDONED:
        return Status.OK
    return None if summary.kind is Kind.UNKNOWN else summary.status


class _Value(NamedTuple):
    unit: "StandardUnitType"
    value: Callable[[EventSummary], float | None]


_VALUES: Mapping[GroupMetricName, _Value] = {
    GroupMetricName.LAG: _Value("Count", lambda summary: summary.total_lag),
    GroupMetricName.SCALABLE_LAG: _Value("Count", lambda summary: summary.signals.scalable_lag),
    GroupMetricName.MAX_LAG: _Value("Count", lambda summary: summary.max_lag),
    GroupMetricName.LAG_SECONDS: _Value("Seconds", lambda summary: summary.signals.lag_seconds),
    GroupMetricName.SCALABLE_LAG_SECONDS: _Value("Seconds", lambda summary: summary.scalable_lag_age),
    GroupMetricName.STATUS: _Value("None", _status),
}
