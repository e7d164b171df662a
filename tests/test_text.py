import subprocess
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot import text as human


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
def test_durations_are_written_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert human.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45.4, "45s"),
        (725, "12m 5s"),
        (3600, "1h"),
        (3605, "1h"),
        (12_000, "3h 20m"),
        (2 * 86_400 + 4 * 3600 + 59, "2d 4h"),
        (400 * 365 * 86_400, "146000d"),
    ],
)
def test_durations_in_a_column_have_no_spaces_inside_a_unit(seconds: float, text: str) -> None:
    assert human.compact_duration(seconds) == text


def test_numbers_are_grouped_and_exact() -> None:
    assert human.count(12345) == "12,345"
    assert human.count(2**64 - 1) == "18,446,744,073,709,551,615"


def test_numbers_in_a_column_have_no_separators() -> None:
    numbers = (0, 12345, 2**64 - 1, 12.0, 12345.6789, 0.5)
    assert [human.plain_amount(n) for n in numbers] == ["0", "12345", str(2**64 - 1), "12", "12345.679", "0.5"]


def test_only_one_is_singular() -> None:
    assert [human.counted(n, "group") for n in (0, 1, 2, 1234)] == ["0 groups", "1 group", "2 groups", "1,234 groups"]
    assert [human.counted_plain(n, "body", "bodies") for n in (1, 1234.0)] == ["1 body", "1234 bodies"]
    assert [human.counted_at_start(n, "topic") for n in (1, 1234)] == ["One topic", "1,234 topics"]


def test_the_first_three_of_many_names_are_listed() -> None:
    assert (human.some(["a"]), human.some(["a", "b", "c"]), human.some([*"abcde"])) == (
        "a",
        "a, b, c",
        "a, b, c and 2 more",
    )


def test_rates_have_a_decimal_only_if_it_is_significant() -> None:
    assert (human.rate(0.25), human.rate(9.16), human.rate(1234.5)) == ("0.2 /s", "9.2 /s", "1,234 /s")


def test_shares_are_written_in_percent() -> None:
    assert (human.percent(1.0), human.percent(0.6666667), human.percent(0)) == ("100 %", "66.7 %", "0 %")


def test_a_time_is_written_with_its_zone() -> None:
    assert human.moment(datetime(2026, 11, 21, 16, 4, 5, 999, tzinfo=UTC)) == "2026-11-21 16:04:05 UTC"


def test_a_time_in_a_table_has_no_zone() -> None:
    when = datetime(2026, 11, 21, 16, 4, 5, 999, tzinfo=UTC)
    assert (human.to_second(when), human.to_minute(when)) == ("2026-11-21 16:04:05", "2026-11-21 16:04")


def test_a_time_in_json_is_iso_8601_in_utc() -> None:
    when = datetime(2026, 11, 21, 16, 4, 5, tzinfo=UTC)
    assert (human.iso(when), human.iso(when.replace(microsecond=250_000))) == (
        "2026-11-21T16:04:05Z",
        "2026-11-21T16:04:05.250000Z",
    )
    assert [human.iso_ms(1_795_277_045_000 + ms) for ms in (0, 1, 250)] == [
        "2026-11-21T16:04:05.000Z",
        "2026-11-21T16:04:05.001Z",
        "2026-11-21T16:04:05.250Z",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders/v1 ünï 名前 🥕", "orders/v1 ünï 名前 🥕"),
        pytest.param("", "(empty)", id="an empty name"),
        pytest.param("  ", "\\u{20}\\u{20}", id="only spaces"),
        ("a\0b\nc", "a\\u{0}b\\u{a}c"),
        ("user\u202egnp.exe", "user\\u{202e}gnp.exe"),
        pytest.param("x" * 300, "x" * 256 + "…", id="300 letters"),
    ],
)
def test_every_character_of_a_name_is_visible(name: str, text: str) -> None:
    assert human.visible(name) == text


@given(st.text())
def test_a_shown_name_is_printable_and_bounded(name: str) -> None:
    shown = human.visible(name)
    assert shown.isprintable()
    assert shown.strip()
    assert len(shown) <= 257 * len("\\u{10ffff}")


@pytest.mark.parametrize("name", ["orders", "a b", "it's", "a\nb", "x'\\\n$(id) `id` ü\t", "\u202eB1", "", "*?[a]"])
def test_a_shell_reads_a_quoted_name_as_one_word_of_one_printable_line(name: str) -> None:
    word = human.shell_word(name)
    assert word.isprintable()
    read = subprocess.run(["bash", "-c", f"printf '%s|' {word}"], capture_output=True, check=True)
    assert read.stdout.decode() == f"{name}|"


def test_numbers_and_durations_at_an_axis_are_short() -> None:
    assert [human.short_count(n) for n in (0, 950, 12_000, 2.5e6, 2**64)] == ["0", "950", "12k", "2.5M", "18.45E"]
    assert [human.short_duration(n) for n in (5, 90, 7200, 86_400_000)] == ["5 s", "1.5 min", "2 h", "1000 d"]


def test_the_time_of_day_is_utc_and_never_fails() -> None:
    assert human.clock(1_795_316_405.9) == "03:00:05"
    assert human.clock(1e18) == "23:59:59"
