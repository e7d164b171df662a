"""Stores the points of metrics, and computes their statistic of each period, as CloudWatch alarms read it.

Times are epoch seconds. A period has the points from its start up to, not including, its end.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

_STANDARD_RESOLUTION = 60
_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {"Maximum": max, "Average": fmean, "SampleCount": len}

Values = list[float | None]
"""One value per period, oldest first; ``None`` where the metric has no point."""


class MetricIdentity(NamedTuple):
    """The identity of a metric. Dimensions are part of it, and CloudWatch aggregates over none of them."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, namespace: str, name: str, dimensions: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    ) -> "MetricIdentity":
        """The metric with its dimensions in a fixed order."""
        pairs = dimensions.items() if isinstance(dimensions, Mapping) else dimensions
        return cls(namespace, name, tuple(sorted(pairs)))


class MetricPoint(NamedTuple):
    """One value at a time; ``resolution_s`` is its StorageResolution (1 or 60)."""

    at_s: float
    value: float
    resolution_s: int = _STANDARD_RESOLUTION


class RecordedMetrics:
    """Points in memory, the newest ``keep_s`` seconds of each metric."""

    def __init__(self, keep_s: float = 86_400) -> None:
        self._keep_s = keep_s
        self._points: dict[MetricIdentity, list[MetricPoint]] = {}

    def put(self, metric: MetricIdentity, at_s: float, value: float, resolution_s: int = _STANDARD_RESOLUTION) -> None:
        """Add one point, which may be late."""
        kept = self._points.setdefault(metric, [])
        point = MetricPoint(at_s, value, resolution_s)
        kept.insert(bisect_left(kept, point) if kept and kept[-1] > point else len(kept), point)
        if kept[-1].at_s - kept[0].at_s > 2 * self._keep_s:
            del kept[: bisect_left(kept, (kept[-1].at_s - self._keep_s,))]

    def points(self, metric: MetricIdentity, start_s: float, end_s: float) -> Sequence[MetricPoint]:
        """The points of a metric with start <= time < end, oldest first."""
        kept = self._points.get(metric, [])
        return kept[bisect_left(kept, (start_s,)) : bisect_left(kept, (end_s,))]


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A statistic of one metric."""

    metric: MetricIdentity
    statistic: str

    @property
    def metrics(self) -> frozenset[MetricIdentity]:
        """The one metric."""
        return frozenset({self.metric})

    def values(self, reader: RecordedMetrics, *, end_s: float, period_s: int, count: int) -> Values:
        """The statistic over each of the ``count`` periods before ``end_s``, oldest first.

        Points of standard resolution cannot fill periods below a minute (API reference, PutMetricAlarm: Period).
        """
        start_s = end_s - count * period_s
        buckets: list[list[float]] = [[] for _ in range(count)]
        for point in reader.points(self.metric, start_s, end_s):
            if period_s >= _STANDARD_RESOLUTION or point.resolution_s < _STANDARD_RESOLUTION:
                buckets[int((point.at_s - start_s) // period_s)].append(point.value)
        summarise = _STATISTICS[self.statistic]
        return [summarise(bucket) if bucket else None for bucket in buckets]
