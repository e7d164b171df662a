"""Converts one event to CloudWatch data: the metrics of its consumer group, in each layout, and a heartbeat."""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from karrot.event import GroupKey, Kind, LagEvent, Source, is_burrow_itself, is_test
from karrot.eventlog.base import StoredEvent
from karrot.reporters.cloudwatch.datum_limits_and_batches import Datum, Dimensions, dimension_value, metric_name
from karrot.reporters.cloudwatch.options import GroupMetricName, Layout, Options
from karrot.signals import Signals, scalable_lag_seconds, signals_of

if TYPE_CHECKING:
    from types_boto3_cloudwatch.literals import StandardUnitType

CLUSTER = "Cluster"
CONSUMER_GROUP = "ConsumerGroup"
HEARTBEAT = "Heartbeat"
HEARTBEAT_SOURCES = (Source.WEBHOOK, Source.KAFKA)
"""The sources whose events are heartbeats: Burrow's notifier and `karrot watch`. Resync reads a Burrow that may have
stopped posting."""


class Held(StrEnum):
    """Why a value of a group is not sent. The values are stable: they are label values."""

    UNKNOWN = "unknown"
    INCOMPLETE = "incomplete"


_NOTHING: Mapping[Held, int] = MappingProxyType({})


class Mapped(NamedTuple):
    """The data of one event.

    ``group`` is sent only if the group is within the limit (`karrot.reporters.cloudwatch.reporter`). ``heartbeat`` is
    always sent. ``held`` counts the values that are not sent, by reason. ``cut`` is the number of names that were too
    long. ``gone`` says that the group was deleted, so another group can take its place.
    """

    key: GroupKey
    group: tuple[Datum, ...] = ()
    heartbeat: Datum | None = None
    held: Mapping[Held, int] = _NOTHING
    cut: int = 0
    gone: bool = False

    @property
    def data(self) -> tuple[Datum, ...]:
        """Everything that may be sent."""
        return self.group if self.heartbeat is None else (*self.group, self.heartbeat)


def data_of(stored: StoredEvent, options: Options) -> Mapped:
    """The data of an event. An unknown value is not sent. A zero is sent only if the event has a zero."""
    event = stored.event
    key = GroupKey(event.cluster, event.consumer)
    heartbeat = _heartbeat(event, options)
    if event.kind is Kind.DELETED:
        return Mapped(key, heartbeat=heartbeat, gone=True)
    topic = None if event.max_lag is None else event.max_lag.topic
    is_apart = is_burrow_itself(event.consumer, topic) or is_test(event.cluster, event.source)
    if is_apart or not options.wants(event.consumer):
        return Mapped(key, heartbeat=heartbeat)
    known, unknown = _values(stored, options)
    if event.complete is not None and event.complete < options.min_complete:
        held = {Held.INCOMPLETE: len(known), Held.UNKNOWN: unknown}
        return Mapped(key, heartbeat=heartbeat, held=_counted(held))
    names = _Names.of(event, options)
    group = tuple(_laid_out(event, options, names, known))
    return Mapped(key, group, heartbeat, _counted({Held.UNKNOWN: unknown}), names.cut)


class _Names(NamedTuple):
    """The names of a group in both layouts, and the number of the used names that were cut."""

    dimensions: Dimensions
    legacy: str
    cut: int

    @classmethod
    def of(cls, event: LagEvent, options: Options) -> "_Names":
        cluster, group = dimension_value(event.cluster), dimension_value(event.consumer)
        legacy = metric_name(event.consumer)
        cuts = {Layout.DIMENSIONS: cluster.cut + group.cut, Layout.LEGACY: int(legacy.cut)}
        dimensions = ((CLUSTER, cluster.text), (CONSUMER_GROUP, group.text))
        return cls(dimensions, legacy.text, sum(cuts[layout] for layout in options.layouts))


def _laid_out(
    event: LagEvent, options: Options, names: _Names, known: Mapping[GroupMetricName, float]
) -> Iterator[Datum]:
    at_ms, resolution = event.observed_at_ms, options.resolution
    if Layout.DIMENSIONS in options.layouts:
        for metric in options.metrics:
            if metric in known:
                yield Datum(metric.value, names.dimensions, known[metric], _UNITS[metric], at_ms, resolution)
    if Layout.LEGACY in options.layouts and GroupMetricName.LAG in known:
        yield Datum(names.legacy, (), known[GroupMetricName.LAG], None, at_ms, resolution)


def _heartbeat(event: LagEvent, options: Options) -> Datum | None:
    is_heard = event.from_burrow if event.source is Source.WEBHOOK else event.source in HEARTBEAT_SOURCES
    if not is_heard or Layout.DIMENSIONS not in options.layouts:
        return None
    dimensions = ((CLUSTER, dimension_value(event.cluster).text),)
    return Datum(HEARTBEAT, dimensions, 1.0, "None", event.observed_at_ms, options.resolution)


def _values(stored: StoredEvent, options: Options) -> tuple[dict[GroupMetricName, float], int]:
    """The configured values that are known, and the number of configured values that are not known."""
    event, configured = stored.event, _configured(options)
    values = {metric: _OF_EVENT[metric](event) for metric in configured & _OF_EVENT.keys()}
    if derived := configured & _OF_SIGNALS.keys():
        signals = signals_of(event).with_age(stored.age)
        values |= {metric: _OF_SIGNALS[metric](event, signals) for metric in derived}
    known = {metric: float(value) for metric, value in values.items() if value is not None}
    return known, len(values) - len(known)


def _configured(options: Options) -> set[GroupMetricName]:
    legacy = {GroupMetricName.LAG} if Layout.LEGACY in options.layouts else set()
    return legacy | set(options.metrics) if Layout.DIMENSIONS in options.layouts else legacy


def _status(event: LagEvent) -> int | None:
    """The number of the group's status. ``None`` for a status that a group cannot have."""
    return None if event.status is None or event.kind is Kind.UNKNOWN else event.status.value


_UNITS: "Mapping[GroupMetricName, StandardUnitType]" = {
    GroupMetricName.LAG: "Count",
    GroupMetricName.SCALABLE_LAG: "Count",
    GroupMetricName.MAX_LAG: "Count",
    GroupMetricName.LAG_SECONDS: "Seconds",
    GroupMetricName.SCALABLE_LAG_SECONDS: "Seconds",
    GroupMetricName.STATUS: "None",
}
_OF_EVENT: Mapping[GroupMetricName, Callable[[LagEvent], float | None]] = {
    GroupMetricName.LAG: lambda event: event.total_lag,
    GroupMetricName.MAX_LAG: lambda event: None if event.max_lag is None else event.max_lag.current_lag,
    GroupMetricName.STATUS: _status,
}
_OF_SIGNALS: Mapping[GroupMetricName, Callable[[LagEvent, Signals], float | None]] = {
    GroupMetricName.SCALABLE_LAG: lambda _, signals: signals.scalable_lag,
    GroupMetricName.LAG_SECONDS: lambda _, signals: signals.lag_seconds,
    GroupMetricName.SCALABLE_LAG_SECONDS: scalable_lag_seconds,
}


def _counted(held: Mapping[Held, int]) -> Mapping[Held, int]:
    return {reason: count for reason, count in held.items() if count}
