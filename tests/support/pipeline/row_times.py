"""Gives the times of the rows that tests make, counted from one midnight."""

import datetime as dt

MIDNIGHT = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
DAY = MIDNIGHT.date()


def second_at(seconds: float) -> dt.datetime:
    """So many seconds after `MIDNIGHT`."""
    return MIDNIGHT + dt.timedelta(milliseconds=round(seconds * 1_000))


def minute_at(minutes: float) -> dt.datetime:
    """So many minutes after `MIDNIGHT`."""
    return MIDNIGHT + dt.timedelta(minutes=minutes)


def epoch_ms(moment: dt.datetime) -> int:
    """A time as epoch milliseconds."""
    return (moment - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
