"""Gives the times of test rows, counted from one midnight."""

import datetime as dt

MIDNIGHT = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
DAY = MIDNIGHT.date()


def second_at(seconds: float) -> dt.datetime:
    """Return the time this number of seconds after `MIDNIGHT`."""
    return MIDNIGHT + dt.timedelta(milliseconds=round(seconds * 1_000))


def minute_at(minutes: float) -> dt.datetime:
    """Return the time this number of minutes after `MIDNIGHT`."""
    return MIDNIGHT + dt.timedelta(minutes=minutes)


def epoch_ms(moment: dt.datetime) -> int:
    """Return a time as epoch milliseconds."""
    return (moment - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
