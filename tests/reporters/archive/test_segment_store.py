from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.reporters.archive.segment_store import SegmentName, end_ms, hour_at, lines_promised

NUMBERS = st.integers(0, 2**63 - 1)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23), timezones=st.just(UTC))  # noqa: DTZ001
LOG_IDS = st.text("0123456789abcdef", min_size=32, max_size=32)


def test_a_name_has_the_time_and_the_events() -> None:
    name = SegmentName(hour_at(1_795_272_998_676), "9f3c", 1, 500, 498)
    assert name.path == "day=2026-11-21/hour=14/9f3c-1-500-498.jsonl.gz"


@given(MOMENTS, LOG_IDS, NUMBERS, NUMBERS, NUMBERS)
def test_every_name_is_read_back(at: datetime, log_id: str, first: int, last: int, lines: int) -> None:
    hour = hour_at(int(at.timestamp()) * 1000)
    assert end_ms(hour) == int(at.replace(minute=0, second=0, microsecond=0).timestamp()) * 1000 + 3_600_000
    assert hour == f"{at:day=%Y-%m-%d/hour=%H}".replace(f"day={at:%Y}", f"day={at.year:04}")
    name = SegmentName(hour, log_id, first, last, lines)
    assert SegmentName.parse(name.path) == name
    assert lines_promised(name.file) == lines


@given(MOMENTS, MOMENTS)
def test_folders_sort_by_time(one: datetime, other: datetime) -> None:
    hours = [hour_at(int(at.timestamp()) * 1000) for at in (one, other)]
    assert (hours[0] <= hours[1]) == (end_ms(hours[0]) <= end_ms(hours[1]))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="an empty path"),
        pytest.param("9f3c-1-500-498.jsonl.gz", id="no day"),
        pytest.param("day=2026-11-21/9f3c-1-500-498.jsonl.gz", id="no hour"),
        pytest.param("day=2026-11-31/hour=14/9f3c-1-500-498.jsonl.gz", id="a day that does not exist"),
        pytest.param("day=2026-11-2/hour=14/9f3c-1-500-498.jsonl.gz", id="a day with one digit"),
        pytest.param("day=2026-11-21/hour=24/9f3c-1-500-498.jsonl.gz", id="hour 24"),
        pytest.param("day=2026-11-21/hour=14/.9f3c-1-500-498.jsonl.gz.part", id="an unfinished file"),
        pytest.param("day=2026-11-21/hour=14/9f3c-1-500.jsonl.gz", id="a missing number"),
        pytest.param("day=2026-11-21/hour=14/9f3c-1-500-498.jsonl.gz.bak", id="another file extension"),
        pytest.param("old/day=2026-11-21/hour=14/9f3c-1-500-498.jsonl.gz", id="below another folder"),
    ],
)
def test_any_other_file_is_not_a_segment(path: str) -> None:
    assert SegmentName.parse(path) is None
