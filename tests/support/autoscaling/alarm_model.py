"""Models CloudWatch alarms: M of N data points over a threshold, evaluated periodically, with repeated actions.

The source is the CloudWatch User Guide, "Using Amazon CloudWatch alarms". If the alarm's period is a minute or more,
CloudWatch evaluates the alarm every minute. If the period is 10, 20 or 30 seconds, CloudWatch evaluates the alarm every
10 seconds. The windows end at the time of the evaluation. CloudWatch invokes an Auto Scaling action when a state
begins, and then once a minute while the state lasts.

`judge` decides the state when some data points are missing. Its rules and the two tables of its tests come from
"Configuring how CloudWatch alarms treat missing data", section "Avoiding premature transitions to alarm state".
An alarm always fetches more points than it needs (the evaluation range). It prefers a real point of any age to a
missing one. So an alarm can stay in ALARM, or even enter it, for a few periods after its metric has stopped.

This model decides two cases that the guide leaves open. First, a single new breaching point with missing neighbours
(``- - - - X``) is INSUFFICIENT_DATA under ``missing``, as in an earlier edition of the table. Second, under
``missing`` or ``ignore``, if fewer points breach than ALARM needs, one real point within the threshold gives OK.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from support.autoscaling.metric_math_evaluator import WatchedQuery
from support.autoscaling.metric_statistics import RecordedMetrics

_MINUTE = 60
_EXTRA_PERIODS = 2
_HIGH_RESOLUTION_SECONDS = 10

Mark = bool | None
"""One data point: breaching, within the threshold (False), or missing (None)."""


class AlarmState(StrEnum):
    """The three states of an alarm."""

    OK = "OK"
    ALARM = "ALARM"
    INSUFFICIENT_DATA = "INSUFFICIENT_DATA"


class Treatment(StrEnum):
    """``TreatMissingData`` of an alarm."""

    MISSING = "missing"
    IGNORE = "ignore"
    BREACHING = "breaching"
    NOT_BREACHING = "notBreaching"


class Comparison(StrEnum):
    """``ComparisonOperator`` of an alarm on a fixed threshold."""

    ABOVE = "GreaterThanThreshold"
    AT_LEAST = "GreaterThanOrEqualToThreshold"
    BELOW = "LessThanThreshold"
    AT_MOST = "LessThanOrEqualToThreshold"

    @property
    def upwards(self) -> bool:
        """Whether values above the threshold breach."""
        return self in (Comparison.ABOVE, Comparison.AT_LEAST)

    def breached(self, value: float, threshold: float) -> bool:
        """Whether the value breaches the threshold."""
        return _BREACHED[self](value, threshold)


class Evaluation(NamedTuple):
    """The outcome of one evaluation: the state and the real values behind it, oldest first."""

    state: AlarmState
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Alarm:
    """The definition of an alarm. ``actions`` has the names of scaling policies by state, and no other actions.

    CloudWatch fetches more points than ``evaluation_periods``. The number depends on the period. The documentation has
    only one example (5 points for 3 periods), which this model follows.
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
        """The seconds between two evaluations."""
        return _MINUTE if self.period_s >= _MINUTE else _HIGH_RESOLUTION_SECONDS

    @property
    def range_s(self) -> int:
        """The evaluation range in seconds. The alarm forgets a silent metric after this time."""
        return (self.evaluation_periods + _EXTRA_PERIODS) * self.period_s

    def evaluate(self, metrics: RecordedMetrics, end_s: float, current: AlarmState) -> Evaluation:
        """Evaluate the periods that end at ``end_s``."""
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

    def look(self, metrics: RecordedMetrics, now_s: float) -> None:
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
        """The policies to invoke now: when a state begins, and then once a minute."""
        policies = self.alarm.actions.get(self.state, ())
        if not policies or (self._acted_s is not None and now_s - self._acted_s < _MINUTE):
            return ()
        self._acted_s = now_s
        return policies


def judge(marks: Sequence[Mark], *, needed: int, of: int, treatment: Treatment, current: AlarmState) -> AlarmState:
    """The state after an evaluation. ``marks`` is the whole evaluation range, oldest first.

    ``needed`` breaching points (Datapoints to Alarm) out of ``of`` points (Evaluation Periods) make an ALARM.
    """
    real = [mark for mark in marks if mark is not None]
    if len(real) >= of:
        return _verdict(sum(real[-of:]), needed)
    match treatment:
        case Treatment.BREACHING:
            return _verdict(sum(real) + of - len(real), needed)
        case Treatment.NOT_BREACHING:
            return _verdict(sum(real), needed)
        case _:
            return _verdict_of_few(marks, real, needed, treatment, current)


def _verdict_of_few(
    marks: Sequence[Mark], real: Sequence[bool], needed: int, treatment: Treatment, current: AlarmState
) -> AlarmState:
    """The state if missing points stay missing, and the range has fewer real points than evaluation periods."""
    if sum(real) >= needed:
        return AlarmState.ALARM
    if not all(real):
        return AlarmState.OK
    if treatment is Treatment.IGNORE:
        return current
    # The state is also ALARM if the oldest breaching point is at least ``needed`` periods old.
    oldest_breach = list(marks).index(True) if True in marks else len(marks)
    return AlarmState.ALARM if len(marks) - oldest_breach >= needed else AlarmState.INSUFFICIENT_DATA


def _verdict(breaching: int, needed: int) -> AlarmState:
    return AlarmState.ALARM if breaching >= needed else AlarmState.OK


_BREACHED: dict[Comparison, Callable[[float, float], bool]] = {
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
}
