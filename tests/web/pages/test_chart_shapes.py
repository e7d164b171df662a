from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.event import GroupKey
from karrot.web.pages.lag_trend_and_chart_shapes import (
    TRAIL_LENGTH,
    Band,
    Point,
    Tick,
    Trend,
    bands,
    chart,
    frame,
    point,
    recent,
    spark,
    trend,
)
from support.burrow.lag_events import make_event
from support.web.website import make_website

KEY = GroupKey("prod-eu", "orders-svc")

_MOMENT = st.floats(0, 1e13, allow_nan=False)
_VALUE = st.none() | st.integers(0, 2**64 - 1)

Points = list[tuple[float, int | None]]


def test_a_sparkline_starts_at_zero_height_and_ends_at_the_newest_value() -> None:
    drawn = spark([(0, 0), (1, 50), (2, None), (3, 100)])
    assert drawn is not None
    assert drawn.line == "2.5,19.5 48,11 93.5,2.5"
    assert drawn.area == "2.5,19.5 2.5,19.5 48,11 93.5,2.5 93.5,19.5"
    assert drawn.end == (93.5, 2.5)
    assert spark([(0, 7), (1, None)]) is None


def test_ticks_are_round_times_in_utc() -> None:
    assert frame(1_795_316_400, 1_795_316_400 + 100).ticks[:2] == [Tick(0.0, "03:00:00"), Tick(20.0, "03:00:20")]
    assert [tick.text for tick in frame(1_795_316_400, 1_795_316_400 + 3600).ticks][:2] == ["03:00", "03:10"]
    assert frame(1_795_219_200, 1_795_219_200 + 30 * 86_400).ticks[0].text == "23 Nov"


def test_a_curve_reaches_up_to_a_round_value() -> None:
    drawn = chart([(0, 0), (50, 1500), (100, 2300)], frame(0, 100), in_time=False)
    assert drawn is not None
    assert [tick.text for tick in drawn.ticks] == ["1k", "2k", "3k"]
    assert drawn.lines == ["0,100 500,50 1000,23.33"]
    assert drawn.areas == ["0,100 0,100 500,50 1000,23.33 1000,100"]
    delays = chart([(0, 5), (100, 4000)], frame(0, 100), in_time=True)
    assert delays is not None
    assert [tick.text for tick in delays.ticks] == ["30 min", "1 h", "1.5 h"]


def test_a_line_has_a_gap_where_no_event_was_received() -> None:
    points = [(0.0, 1), (10.0, 2), (20.0, None), (30.0, 3), (40.0, 4), (400.0, 5), (410.0, 5)]
    drawn = chart(points, frame(0, 410), in_time=False)
    assert drawn is not None
    assert [line.count(",") for line in drawn.lines] == [2, 2, 2]
    assert chart([(0, None)], frame(0, 1), in_time=False) is None


def test_equal_adjacent_values_form_one_band() -> None:
    found = bands([Band(0, 10, "OK"), Band(10, 20, "OK"), Band(20, 60, "ERR"), Band(60, 100, "OK")], frame(0, 100))
    assert [(span.at, span.width, span.kind) for span in found] == [(0, 20, "OK"), (20, 40, "ERR"), (60, 40, "OK")]


@settings(max_examples=50)
@given(points=st.lists(st.tuples(_MOMENT, _VALUE), min_size=1, max_size=20), in_time=st.booleans())
def test_any_values_can_be_drawn_inside_the_chart(points: Points, *, in_time: bool) -> None:
    points.sort(key=lambda point: point[0])
    within = frame(points[0][0], points[-1][0])
    assert len(within.ticks) <= 8
    drawn = chart(points, within, in_time=in_time)
    if drawn is None:
        assert all(value is None for _, value in points)
        return
    for place in " ".join(drawn.lines).split():
        x, y = map(float, place.split(","))
        assert 0 <= x <= 1000
        assert -0.01 <= y <= 100
    assert drawn.ticks
    assert max(tick.at for tick in drawn.ticks) <= 100.01


def trail(*lags: int, every_ms: int = 1000) -> list[Point]:
    website = make_website()
    for lag in lags:
        website.context.intake.accept(make_event(total_lag=lag, observed_at_ms=website.clock.wall))
        website.clock.advance(every_ms)
    return list(map(point, recent(website.log, [KEY])[0]))


def test_a_trail_has_the_newest_lags_of_each_group() -> None:
    website = make_website()
    for lag in (None, *range(TRAIL_LENGTH)):
        website.clock.advance(1000)
        for consumer in ("a", "b"):
            shown = lag if consumer == "a" else 7
            event = make_event(consumer=consumer, total_lag=shown, observed_at_ms=website.clock.wall)
            website.context.intake.accept(event)
    keys = [GroupKey("prod-eu", name) for name in ("b", "nobody", "a")]
    b, nobody, a = (list(map(point, events)) for events in recent(website.log, keys))
    assert [lag for _, lag in a] == list(range(TRAIL_LENGTH))
    assert ({lag for _, lag in b}, len(b), nobody) == ({7}, TRAIL_LENGTH, [])
    assert a[-1][0] == website.clock.wall / 1000


def test_a_trend_is_a_word_and_a_slope() -> None:
    assert trend(trail(0, 100, 200, 300)) == Trend("growing", 100.0)
    assert trend(trail(300, 200, 100, 0)) == Trend("shrinking", -100.0)
    assert trend(trail(300, 301, 299, 300)) is not None
    steady = trend(trail(300, 301, 299, 302))
    assert steady is not None
    assert steady.word == "steady"


def word(*lags: int) -> str:
    found = trend(trail(*lags))
    assert found is not None
    return found.word


def test_a_lag_that_grows_for_hours_is_not_called_steady() -> None:
    all_night = range(1_000_000, 1_030_000, 1000)
    assert trend(trail(*all_night)) == Trend("growing", 1000.0)
    assert word(*reversed(all_night)) == "shrinking"
    uneven = [lag + (-400, 300, 0)[turn % 3] for turn, lag in enumerate(all_night)]
    assert word(*uneven) == "growing"


def test_a_large_lag_that_scatters_or_has_turned_is_steady() -> None:
    assert word(*(1_000_000 + 7919 * turn % 1000 for turn in range(30))) == "steady"
    assert word(*range(1_000_000, 1_030_000, 1000), 1_028_500, 1_028_000, 1_027_500) == "steady"


def test_two_events_or_events_at_once_are_no_trend() -> None:
    assert trend(trail(0, 1000)) is None
    assert trend(trail(0, 1000, 2000, every_ms=0)) is None
