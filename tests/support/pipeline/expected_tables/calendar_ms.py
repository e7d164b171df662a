"""Days and minutes in UTC, as epoch milliseconds."""

from datetime import UTC, datetime

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
YEAR_2015_MS = 1_420_070_400_000
END_OF_9999_MS = 253_402_300_800_000


def minute_of(at_ms: int) -> int:
    """Return the beginning of the minute."""
    return at_ms - at_ms % MINUTE_MS


def day_of(at_ms: int) -> int:
    """Return the beginning of the day."""
    return at_ms - at_ms % DAY_MS


def day_text(at_ms: int) -> str:
    """Return the day as YYYY-MM-DD."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
