"""Models CloudWatch alarms: M of N data points over a threshold, evaluated periodically, with repeated actions.

From the CloudWatch User Guide, "Using Amazon CloudWatch alarms": an alarm with a period of a minute or more is
evaluated every minute over windows that end then, one of 10, 20 or 30 seconds every 10 seconds. An Auto Scaling action
is invoked when the state is entered and then once a minute while it lasts.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from karrot.autoscaling.metric_series import MetricReader, WatchedQuery
from karrot.autoscaling.missing_data import AlarmState, Treatment, judge

_MINUTE = 60
_EXTRA_PERIODS = 2
_HIGH_RESOLUTION_SECONDS = 10


class Comparison(StrEnum):
    """``ComparisonOperator`` of an alarm on a fixed threshold."""

    ABOVE = "GreaterThanThreshold"
    AT_LEAST = "GreaterThanOrEqualToThreshold"
    BELOW = "LessThanThreshold"
    AT_MOST = "LessThanOrEqualToThreshold"

    @property
    def upwards(self) -> bool:
        """Whether large values breach."""
        return self in (Comparison.ABOVE, Comparison.AT_LEAST)

    def breached(self, value: float, threshold: float) -> bool:
        """Whether the value is on the wrong side."""
        return _BREACHED[self](value, threshold)


class Evaluation(NamedTuple):
    """The outcome of one evaluation: the state and the real values behind it, oldest first."""

    state: AlarmState
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """The definition of an alarm. ``actions`` names scaling policies by state; other actions are not kept.

    CloudWatch fetches more points than ``evaluation_periods``; how many more depends on the period and is not
    documented beyond one example (5 for 3), which this model follows.
    """

    name: str
    query: WatchedQuery
    comparison: Comparison
    threshold: float
    period_s: int = _MINUTE
    evaluation_periods: int = 1
    datapoints_to_alarm: int = 1
    treatment: Treatment = Treatment.MISSING
    actions: Mapping[AlarmState, tuple[str, ...]] = field(default_factory=dict)

    @property
    def evaluated_every_s(self) -> int:
        """Seconds between two evaluations."""
        return _MINUTE if self.period_s >= _MINUTE else _HIGH_RESOLUTION_SECONDS

    @property
    def range_s(self) -> int:
        """Seconds after which a silent metric is forgotten: the evaluation range."""
        return (self.evaluation_periods + _EXTRA_PERIODS) * self.period_s

    def evaluate(self, metrics: MetricReader, end_s: float, current: AlarmState) -> Evaluation:
        """Judge the periods that end at ``end_s``."""
        count = self.evaluation_periods + _EXTRA_PERIODS
        values = self.query.values(metrics, end_s=end_s, period_s=self.period_s, count=count)
        state = judge(
            [None if value is None else self.comparison.breached(value, self.threshold) for value in values],
            needed=self.datapoints_to_alarm,
            of=self.evaluation_periods,
            treatment=self.treatment,
            current=current,
        )
        real = [value for value in values if value is not None]
        return Evaluation(state, tuple(real[-self.evaluation_periods :]))


class AlarmWatch:
    """Follows an alarm over time: its state, and when its actions are due."""

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm
        self.latest = Evaluation(AlarmState.INSUFFICIENT_DATA, ())
        self._evaluated_s: float | None = None
        self._acted_s: float | None = None

    @property
    def state(self) -> AlarmState:
        """The state after the latest evaluation; INSUFFICIENT_DATA before the first."""
        return self.latest.state

    def look(self, metrics: MetricReader, now_s: float) -> None:
        """Evaluate if a new evaluation is due."""
        end_s = now_s - now_s % self.alarm.evaluated_every_s
        if self._evaluated_s is not None and end_s <= self._evaluated_s:
            return
        self._evaluated_s = end_s
        before = self.state
        self.latest = self.alarm.evaluate(metrics, end_s, before)
        if self.state is not before:
            self._acted_s = None

    def due(self, now_s: float) -> tuple[str, ...]:
        """The policies to invoke now: on entering a state, then once a minute."""
        policies = self.alarm.actions.get(self.state, ())
        if not policies or (self._acted_s is not None and now_s - self._acted_s < _MINUTE):
            return ()
        self._acted_s = now_s
        return policies


_BREACHED: dict[Comparison, Callable[[float, float], bool]] = {
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
}
