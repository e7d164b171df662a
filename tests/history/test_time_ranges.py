from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.history.time_ranges import DayRange, TimeRange, granularity, parse_time

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOW),
        ("24h", NOW - timedelta(hours=24)),
        ("now-90m", NOW - timedelta(minutes=90)),
        ("7d", NOW - timedelta(days=7)),
        ("2026-11-19", NOW.replace(day=19, hour=0)),
        ("2026-11-19T09:30", NOW.replace(day=19, hour=9, minute=30)),
        ("2026-11-19T09:30Z", NOW.replace(day=19, hour=9, minute=30)),
        ("2026-11-19 09:30+02:00", NOW.replace(day=19, hour=7, minute=30)),
    ],
)
def test_a_time_is_an_iso_time_or_a_duration_before_now(text: str, meant: datetime) -> None:
    read = parse_time(text, NOW)
    assert (read, read.utcoffset()) == (meant, timedelta(0))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty text"),
        "5",
        "-",
        "tomorrow",
        "2026-13-01",
        "now+1h",
        "1w",
        "99999999d",
        "24h ago",
        pytest.param("٣d", id="a digit that is not ASCII"),
        "0001-01-01",
    ],
)
def test_anything_else_gives_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|must be") as raised:
        parse_time(text, NOW)
    assert len(str(raised.value).splitlines()) == 1


@given(st.text())
def test_any_text_gives_a_time_or_one_sentence(text: str) -> None:
    with suppress(ValueError):
        assert parse_time(text, NOW).utcoffset() == timedelta(0)


@given(st.integers(-(10**9), 10**9), st.sampled_from([UTC, timezone(timedelta(hours=-5))]))
def test_an_iso_time_is_equal_after_a_round_trip(seconds: int, zone: timezone) -> None:
    written = (NOW + timedelta(seconds=seconds)).astimezone(zone)
    assert parse_time(written.isoformat(), NOW) == written


def test_a_time_range_ends_after_its_start_and_has_days_in_utc() -> None:
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    span = TimeRange(midnight, midnight + timedelta(days=1))
    assert span.days == DayRange(midnight.date(), midnight.date())
    with pytest.raises(ValueError, match="its end must be after its start"):
        TimeRange(NOW, NOW)


def test_a_step_is_a_whole_number_of_minutes() -> None:
    assert [granularity(text) for text in ("1m", "60", "1h", "1d")] == [
        timedelta(minutes=1),
        timedelta(minutes=1),
        timedelta(hours=1),
        timedelta(days=1),
    ]
    for text in ("0", "30s", "90s", "x"):
        with pytest.raises(ValueError, match="--granularity is"):
            granularity(text)
