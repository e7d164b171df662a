"""Models CloudWatch alarms: M of N data points over a threshold, evaluated periodically, with repeated actions.

From the CloudWatch User Guide, "Using Amazon CloudWatch alarms": an alarm with a period of a minute or more is
evaluated every minute over windows that end then, one of 10, 20 or 30 seconds every 10 seconds. An Auto Scaling action
is invoked when the state is entered and then once a minute while it lasts.

`judge` decides the state when some data points are missing. Its rules, and the two tables of its tests, are those of
"Configuring how CloudWatch alarms treat missing data" with its section "Avoiding premature transitions to alarm state".
An alarm always fetches more points than it needs (the evaluation range) and prefers a real one, however old, to a
missing one. So an alarm can stay in ALARM, or even go into it, for a few periods after its metric has stopped.

Two things the page leaves open are settled here. A lone young breaching point with missing neighbours
(``- - - - X``): INSUFFICIENT_DATA under ``missing``, as an earlier edition of the table had it. Under ``missing`` and
``ignore``, one real point within the threshold is enough for OK where too few breach; this is what rows 2 to 4 show.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from karrot.autoscaling.metric_series import MetricReader, WatchedQuery

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


def judge(marks: Sequence[Mark], *, needed: int, of: int, treatment: Treatment, current: AlarmState) -> AlarmState:
    """The state after an evaluation. ``marks`` is the whole evaluation range, oldest first.

    ``needed`` breaching points (Datapoints to Alarm) ``of`` so many (Evaluation Periods) make an ALARM.
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
    """The state where missing points stay missing: fewer real points than the alarm asks for."""
    if sum(real) >= needed:
        return AlarmState.ALARM
    if not all(real):
        return AlarmState.OK
    if treatment is Treatment.IGNORE:
        return current
    # An ALARM too if the oldest breaching point is as old as the number of points that an ALARM takes.
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
