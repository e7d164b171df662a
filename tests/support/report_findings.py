"""Makes the findings of a report."""

import datetime as dt
from typing import Any

from karrot.history.answers_and_errors import Incident
from karrot.history.report_findings import (
    AnsweredTopics,
    Budget,
    Capacity,
    DayBurn,
    DayPeak,
    DayTotal,
    Findings,
    GroupLag,
    Hours,
    IncidentTotals,
    LagPoint,
    Quarantined,
    Skewed,
)
from karrot.history.time_ranges import DayRange

MONDAY = dt.date(2026, 11, 16)
WEEK = DayRange(MONDAY, dt.date(2026, 11, 22))
_HOUR = 3600


def hour_at(day: int, hour: float = 0) -> int:
    """Return a time of the week in seconds since 1970."""
    return WEEK.start_s + day * 24 * _HOUR + round(hour * _HOUR)


def _days(first: dt.date, beyond: list[int]) -> list[DayTotal]:
    return [
        DayTotal(first + dt.timedelta(days=number), 2, 2_880, 2_880 - bad, 2_880, 2_880 - bad)
        for number, bad in enumerate(beyond)
    ]


def quiet_week() -> Findings:
    """Make the findings of two groups that were OK in every minute."""
    return Findings(
        period=WEEK,
        target_seconds=60.0,
        objective=0.99,
        heard_from_s=WEEK.start_s,
        heard_until_s=WEEK.end_s,
        days=_days(WEEK.first, [0] * 7),
        days_before=[],
        groups=2,
        lags=[],
        incidents=[],
        open_incidents=[],
        incident_totals=IncidentTotals(0, 0, 0),
        flapping=[],
        hours=[],
        skewed=[],
        skew_watched=AnsweredTopics(0, 0),
        capacities=[],
        rates_watched=AnsweredTopics(0, 0),
        budgets=[],
        quarantined=Quarantined(0, 0),
    )


def make_incident(began: int, ended: int | None, **fields: Any) -> Incident:
    """Make an incident of ``orders`` between two times in seconds since 1970."""
    started_at = dt.datetime.fromtimestamp(began, dt.UTC)
    ended_at = None if ended is None else dt.datetime.fromtimestamp(ended, dt.UTC)
    ended_by = None if ended is None else "close"
    return Incident("i", "prod", "orders", started_at, ended_at, ended_by, "ERR", 9_000, 12, ("orders.v1",))._replace(
        **fields
    )


def make_findings(**fields: Any) -> Findings:
    """Make the findings of a week in which the group ``orders`` has incidents on Wednesday and on Sunday."""
    incidents = [
        make_incident(hour_at(2, 12), hour_at(2, 15.5)),
        make_incident(hour_at(6, 20), None, worst_status="WARN", incident_id="j"),
    ]
    peaks = [DayPeak(MONDAY + dt.timedelta(days=day), 70.0 + 2 * day) for day in range(7)]
    told = quiet_week()._replace(
        days=_days(WEEK.first, [0, 0, 210, 0, 0, 0, 240]),
        days_before=_days(WEEK.before.first, [0, 60, 0, 0, 0, 0, 0]),
        lags=[
            GroupLag(
                "prod",
                "orders",
                4_000.0,
                9_000,
                hour_at(2, 14),
                "ERR",
                False,
                [LagPoint(hour_at(2, hour), 4_000.0 if hour == 14 else 90.0) for hour in range(12, 16)],
            ),
            GroupLag("prod", "mail", None, 12, hour_at(0), "OK", False, [LagPoint(hour_at(0), None)]),
        ],
        incidents=incidents,
        open_incidents=incidents[1:],
        incident_totals=IncidentTotals(2, 1, 0),
        hours=[Hours("prod", "orders", 6 * 86_400, 4 * _HOUR, 3 * _HOUR + 1_800)],
        skewed=[Skewed("prod", "orders", "orders.v1", 180, 0.8125, 0.7, 3, "orders-1", "hot_partition")],
        skew_watched=AnsweredTopics(2, 1),
        capacities=[Capacity("prod", "orders", "orders.v1", 100.0, peaks)],
        rates_watched=AnsweredTopics(2, 1),
        budgets=[
            Budget(
                "prod",
                "orders",
                10_080,
                450,
                100.8,
                450 / 100.8,
                "orders.v1/3",
                [
                    DayBurn(peak.day, 14.6 if peak.day.day == 18 else None if peak.day.day == 17 else 0.0)
                    for peak in peaks
                ],
            )
        ],
    )
    return told._replace(**fields)
