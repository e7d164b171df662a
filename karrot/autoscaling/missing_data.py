"""Decides the state of an alarm when some of its data points are missing.

The rules, and the two tables of their tests, are those of the CloudWatch User Guide, "Configuring how CloudWatch
alarms treat missing data" with its section "Avoiding premature transitions to alarm state". An alarm always fetches
more points than it needs (the evaluation range) and prefers a real one, however old, to a missing one. So an alarm
can stay in ALARM, or even go into it, for a few periods after its metric has stopped.

Two things the page leaves open are settled here. A lone young breaching point with missing neighbours
(``- - - - X``): INSUFFICIENT_DATA under ``missing``, as an earlier edition of the table had it. Under ``missing`` and
``ignore``, one real point within the threshold is enough for OK where too few breach; this is what rows 2 to 4 show.
"""

from collections.abc import Sequence
from enum import StrEnum

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
    return AlarmState.ALARM if _breached_long_ago(marks, needed) else AlarmState.INSUFFICIENT_DATA


def _breached_long_ago(marks: Sequence[Mark], needed: int) -> bool:
    """Whether the oldest breaching point is as old as the number of points an ALARM takes."""
    return True in marks and len(marks) - list(marks).index(True) >= needed


def _verdict(breaching: int, needed: int) -> AlarmState:
    return AlarmState.ALARM if breaching >= needed else AlarmState.OK
