from karrot.event import GroupKey
from karrot.eventlog.base import GroupState
from karrot.web.pages.lag_trend import Mark, Trails, Trend, marks, trend
from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import recorded_body
from support.web.website import Website, make_website

KEY = GroupKey("prod-eu", "orders-svc")


def tell(website: Website, *lags: int | None) -> None:
    for lag in lags:
        website.context.intake.accept(make_event(total_lag=lag, observed_at_ms=website.clock.wall))
        website.clock.advance(1000)


def known(website: Website) -> GroupState:
    state = website.log.group(KEY)
    assert state is not None
    return state


def trail(*lags: int, every_ms: int = 1000) -> list[Mark]:
    website = make_website()
    for lag in lags:
        website.context.intake.accept(make_event(total_lag=lag, observed_at_ms=website.clock.wall))
        website.clock.advance(every_ms)
    return marks(website.log, KEY, 100)


def test_a_point_has_the_same_values_as_its_event() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    state = website.log.latest()[0]
    (mark,) = marks(website.log, state.key, 5)
    summary = state.summary
    assert mark == Mark(
        state.seq,
        summary.observed_at_ms,
        summary.received_at_ms,
        summary.source,
        summary.kind,
        summary.status_text,
        summary.total_lag,
        summary.max_lag,
        summary.signals.lag_seconds,
        sum(summary.bad),
    )


def test_a_trail_grows_by_new_events_and_is_bounded() -> None:
    website = make_website()
    trails = Trails(length=3)
    tell(website, 1, 2)
    assert [mark.lag for mark in trails.of(website.log, known(website))] == [1, 2]
    tell(website, 3, 4)
    assert [mark.lag for mark in trails.of(website.log, known(website))] == [2, 3, 4]


def test_a_group_without_new_events_is_not_read_again() -> None:
    website = make_website()
    trails = Trails()
    tell(website, 1, 2)
    first = trails.of(website.log, known(website))
    assert trails.of(website.log, known(website)) is first


def test_the_number_of_remembered_groups_is_bounded() -> None:
    website = make_website()
    trails = Trails(groups=1)
    tell(website, 1)
    website.context.intake.accept(make_event(consumer="other"))
    first = trails.of(website.log, known(website))
    other = website.log.group(GroupKey("prod-eu", "other"))
    assert other is not None
    trails.of(website.log, other)
    assert trails.of(website.log, known(website)) is not first


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
