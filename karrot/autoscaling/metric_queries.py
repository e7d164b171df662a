"""What an alarm or a target tracking policy watches: one metric, or metric math over several."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from karrot.autoscaling.metric_math import Expression, Gaps
from karrot.autoscaling.metric_series import MetricIdentity, MetricReader, Values, values_per_period

__all__ = ["MathQuery", "MetricQuery", "WatchedQuery"]


class WatchedQuery(Protocol):
    """A value per period."""

    @property
    def metrics(self) -> frozenset[MetricIdentity]:
        """Every metric that is read."""

    def values(self, reader: MetricReader, *, end_s: float, period_s: int, count: int) -> Values:
        """The values of the ``count`` periods before ``end_s``, oldest first."""


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A statistic of one metric."""

    metric: MetricIdentity
    statistic: str

    @property
    def metrics(self) -> frozenset[MetricIdentity]:
        """The one metric."""
        return frozenset({self.metric})

    def values(self, reader: MetricReader, *, end_s: float, period_s: int, count: int) -> Values:
        """The statistic per period."""
        return values_per_period(reader, self.metric, self.statistic, end_s=end_s, period_s=period_s, count=count)


@dataclass(frozen=True, slots=True)
class MathQuery:
    """Metrics and expressions by id, and the id whose values count. Expressions may use each other, not in a circle."""

    parts: Mapping[str, MetricQuery | Expression]
    returned: str
    gaps: Gaps = Gaps.ZERO

    @property
    def metrics(self) -> frozenset[MetricIdentity]:
        """Every metric that an id stands for."""
        return frozenset(part.metric for part in self.parts.values() if isinstance(part, MetricQuery))

    def values(self, reader: MetricReader, *, end_s: float, period_s: int, count: int) -> Values:
        """The values of the returned id."""

        def of(name: str) -> Values:
            part = self.parts[name]
            if isinstance(part, MetricQuery):
                return part.values(reader, end_s=end_s, period_s=period_s, count=count)
            return part.values({each: of(each) for each in part.names}, count, self.gaps)

        return of(self.returned)
