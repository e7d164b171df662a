from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot import text as human
from support.burrow.lag_events import make_partition


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (12, "12 s"),
        (59.6, "1 min"),
        (130, "2 min 10 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (11_520, "3 h 12 min"),
        (2 * 86_400 + 3 * 3600 + 59, "2 d 3 h"),
        (-3, "0 s"),
        (1e30, "over 100 years"),
    ],
)
def test_durations_are_told_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert human.duration(seconds) == text


def test_numbers_are_grouped_and_exact() -> None:
    assert human.count(12345) == "12,345"
    assert human.count(2**64 - 1) == "18,446,744,073,709,551,615"


def test_rates_have_a_decimal_where_it_says_something() -> None:
    assert (human.rate(0.25), human.rate(9.16), human.rate(1234.5)) == ("0.2 /s", "9.2 /s", "1,234 /s")


def test_shares_are_percent() -> None:
    assert (human.percent(1.0), human.percent(0.6666667), human.percent(0)) == ("100 %", "66.7 %", "0 %")


def test_a_moment_names_its_zone() -> None:
    assert human.moment(datetime(2026, 11, 21, 16, 4, 5, 999, tzinfo=UTC)) == "2026-11-21 16:04:05 UTC"


def test_the_unknown_is_a_dash_that_says_so() -> None:
    functions = (human.count, human.duration, human.rate, human.percent, human.moment)
    assert {str(function(None)) for function in functions} == {'<span class="quiet" title="not known">–</span>'}  # noqa: RUF001


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders/v1 ünï 名前 🥕", "orders/v1 ünï 名前 🥕"),
        ("", "(empty)"),
        ("  ", "\\u{20}\\u{20}"),
        ("a\0b\nc", "a\\u{0}b\\u{a}c"),
        ("user\u202egnp.exe", "user\\u{202e}gnp.exe"),
        ("x" * 300, "x" * 256 + "…"),
    ],
)
def test_everything_in_a_name_can_be_seen(name: str, text: str) -> None:
    assert human.visible(name) == text


@given(st.text())
def test_a_shown_name_is_printable_and_bounded(name: str) -> None:
    shown = human.visible(name)
    assert shown.isprintable()
    assert shown.strip()
    assert len(shown) <= 257 * len("\\u{10ffff}")


def test_what_stands_between_backticks_is_code_and_nothing_is_markup() -> None:
    assert human.marked("`path` names <it>; `a<b`.") == "<code>path</code> names &lt;it&gt;; <code>a&lt;b</code>."


def test_the_log_end_offset_is_the_commit_and_its_lag() -> None:
    assert human.head_offset(make_partition(current_lag=40)) == 508_140
    assert human.head_offset(make_partition(end=None)) is None


def test_beside_an_axis_numbers_and_durations_are_short() -> None:
    assert [human.short_count(n) for n in (0, 950, 12_000, 2.5e6, 2**64)] == ["0", "950", "12k", "2.5M", "18.45E"]
    assert [human.short_duration(n) for n in (5, 90, 7200, 86_400_000)] == ["5 s", "1.5 min", "2 h", "1000 d"]


def test_the_time_of_day_is_utc_and_never_fails() -> None:
    assert human.clock(1_795_316_405.9) == "03:00:05"
    assert human.clock(1e18) == "23:59:59"
