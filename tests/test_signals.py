import math

import pytest
from hypothesis import given

from karrot.burrow.payload import parse_webhook
from karrot.event import AgeKind, LagAge, LagEvent, OffsetSample, PartitionLag, TopicPartition
from karrot.signals import Signals, scalable_lag_seconds, signals_of
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.burrow.lagging_consumer import mean_signal_errors
from support.burrow.recorded_bodies import recorded_body, recorded_posts

NOW_MS = 1_800_000_000_000
TEN_YEARS = 10 * 365 * 86_400


def sample(ago: float, offset: int, lag: int | None = None, *, seen_ago: float | None = None) -> OffsetSample:
    """Return a commit ``ago`` seconds before the evaluation."""
    seen_ms = None if seen_ago is None else NOW_MS - int(seen_ago * 1000)
    return OffsetSample(offset, NOW_MS - int(ago * 1000), lag=lag, observed_at_ms=seen_ms)


def falling_behind(**overrides: object) -> LagEvent:
    """Return an event: 10 messages per second are written and 4 read; the log end was 10,000 a hundred seconds ago."""
    partition = make_partition(
        status_text="WARN",
        start=sample(100, 9_500, 500),
        end=sample(20, 9_820, 980),
        current_lag=1_180,
    )
    return make_event(observed_at_ms=NOW_MS, max_lag=partition._replace(**overrides))


def of(**overrides: object) -> Signals:
    return signals_of(falling_behind(**overrides))


def test_a_lag_older_than_the_window_is_extrapolated_with_the_produce_rate() -> None:
    assert of() == Signals(
        scalable_lag=11_020,
        produce_rate=10.0,
        consume_rate=4.0,
        lag_seconds=118.0,
        lag_seconds_extrapolated=True,
        catch_up_seconds=None,
    )


def test_a_lag_within_the_window_is_interpolated() -> None:
    signals = of(start=sample(100, 9_900, 100), end=sample(20, 10_700, 100), current_lag=300)
    assert (signals.lag_seconds, signals.lag_seconds_extrapolated) == (30.0, False)


def test_a_lag_that_grew_since_the_newest_commit_is_interpolated_up_to_the_evaluation() -> None:
    signals = of(start=sample(100, 9_900, 100), end=sample(20, 10_800, 0), current_lag=200)
    assert signals.lag_seconds == 20.0


def test_the_lag_in_seconds_is_the_age_of_the_oldest_message_that_the_log_still_has() -> None:
    """The log ended at 1000 a hundred seconds ago, and at 2000 now; retention has deleted all below 1500."""
    found = of(
        start=sample(100, 400, 500)._replace(log_end=1000),
        end=sample(10, 400, 400)._replace(log_end=1900),
        current_lag=500,
        log_end=2000,
        log_start=1500,
    )
    assert (found.lag_seconds, found.produce_rate) == (50, 10)


def test_an_idle_time_counts_from_its_end() -> None:
    signals = of(start=sample(100, 10_000, 0), end=sample(20, 10_000, 0), current_lag=200)
    assert signals.lag_seconds == 20.0


def test_a_faster_consumer_catches_up() -> None:
    signals = of(start=sample(100, 5_000, 5_000), end=sample(20, 9_800, 1_000), current_lag=1_200)
    assert (signals.produce_rate, signals.consume_rate, signals.catch_up_seconds) == (10.0, 60.0, 24.0)


def test_a_catch_up_time_is_rounded_to_a_millisecond() -> None:
    signals = of(start=sample(100, 9_001, 999), end=sample(20, 10_041, 759), current_lag=959)
    assert (signals.produce_rate, signals.consume_rate, signals.catch_up_seconds) == (10.0, 13.0, 319.667)


def test_no_lag_means_zero_seconds_and_no_catch_up_time() -> None:
    signals = of(start=sample(100, 9_000, 0), end=sample(20, 9_800, 0), current_lag=0)
    assert (signals.lag_seconds, signals.lag_seconds_extrapolated, signals.catch_up_seconds) == (0.0, False, 0.0)


def test_the_log_end_has_the_time_at_which_burrow_saw_the_commit() -> None:
    # After a restart Burrow reads old commits and compares them with the current log end.
    assert of(
        start=sample(3_600, 9_500, 500, seen_ago=100), end=sample(3_500, 9_820, 980, seen_ago=20)
    ) == of()._replace(consume_rate=None)


@pytest.mark.parametrize(
    ("overrides", "known"),
    [
        ({"start": None, "end": None}, {}),
        ({"start": sample(100, 9_500), "end": sample(20, 9_820), "current_lag": None}, {"consume_rate": 4.0}),
        ({"start": sample(20, 9_820, 980), "current_lag": None}, {}),
        ({"end": None}, {}),
        ({"start": sample(0, 9_820, 1_180), "end": sample(0, 9_820, 1_180)}, {}),
    ],
    ids=["no commits", "no lags", "one commit", "no newest commit", "no width"],
)
def test_missing_fields_give_unknown_signals(overrides: dict[str, object], known: dict[str, float]) -> None:
    assert of(**overrides) == Signals(scalable_lag=11_020, **known)  # type: ignore[arg-type]


def test_an_idle_producer_leaves_an_older_lag_unknown() -> None:
    signals = of(start=sample(100, 9_500, 500), end=sample(20, 9_820, 180), current_lag=180)
    assert (signals.produce_rate, signals.lag_seconds, signals.catch_up_seconds) == (0.0, None, 45.0)


def test_a_log_end_that_went_back_gives_no_lag_in_seconds() -> None:
    signals = of(start=sample(100, 9_500, 500), end=sample(20, 9_600, 100), current_lag=100)
    assert (signals.produce_rate, signals.lag_seconds) == (None, None)


def test_commits_in_the_wrong_order_give_no_lag_in_seconds() -> None:
    signals = of(start=sample(20, 9_500, 500), end=sample(100, 9_820, 980))
    assert (signals.produce_rate, signals.consume_rate, signals.lag_seconds) == (None, None, None)


def test_a_rewound_consumer_has_no_consume_rate() -> None:
    assert of(start=sample(100, 9_500, 500), end=sample(20, 9_000, 1_800), current_lag=2_000).consume_rate is None


def test_a_stopped_consumer_has_a_consume_rate_of_zero() -> None:
    assert of(status_text="STOP").consume_rate == 0.0


@pytest.mark.parametrize(("ago", "rate"), [(100, 4.0), (100.001, None)], ids=["as old as the window", "1 ms older"])
def test_commits_older_than_their_window_do_not_give_the_current_rate(ago: float, rate: float | None) -> None:
    commits = {"start": sample(ago + 100, 9_500, 500), "end": sample(ago, 9_900, 1_100)}
    assert of(status_text="OK", **commits).consume_rate == rate


def test_misread_timestamps_of_kafka_4_1_are_not_used() -> None:
    misread = OffsetSample(9_820, 7_850_000_000_000_000_000, lag=980)
    assert of(end=misread) == of()._replace(consume_rate=None)
    assert of(start=misread, end=misread) == Signals(scalable_lag=11_020)


def test_a_negative_lag_says_nothing_about_the_log_end() -> None:
    assert of(current_lag=-1) == of()


def test_a_clock_a_little_behind_burrows_gives_no_negative_age() -> None:
    ahead = of(start=sample(100, 9_000, 1_000), end=sample(-2, 10_020, 0), current_lag=5)
    assert ahead.lag_seconds == 0.0
    assert ahead.produce_rate == 0.196078


def test_a_clock_far_behind_burrows_gives_no_age() -> None:
    assert of(start=sample(-100, 9_000, 1_000), end=sample(-200, 10_020, 0), current_lag=5).lag_seconds is None


def test_a_lag_in_seconds_is_at_most_ten_years() -> None:
    slow = of(start=sample(100, 0, 10_000), end=sample(20, 1, 10_000), current_lag=10_000)
    assert (slow.lag_seconds, slow.lag_seconds_extrapolated, slow.catch_up_seconds) == (1_000_000.0, True, 4_000_000.0)
    lag = TEN_YEARS // 100
    longest = of(start=sample(100, 0, lag), end=sample(0, 1, lag), current_lag=lag)
    assert (longest.lag_seconds, longest.catch_up_seconds) == (TEN_YEARS, None)
    slow = of(start=sample(100, 0, lag + 1), end=sample(0, 1, lag + 1), current_lag=lag + 1)
    assert (slow.lag_seconds, slow.lag_seconds_extrapolated, slow.catch_up_seconds) == (None, False, None)


def test_scalable_lag_leaves_out_what_more_consumers_would_not_help() -> None:
    bad = tuple(
        make_partition(partition=number, status_text=status, current_lag=lag)
        for number, (status, lag) in enumerate(
            [
                ("STOP", 100),
                ("STALL", 20),
                ("REWIND", 3),
                ("WARN", 4_000),
                ("STOP", None),
                ("OPEN_TRANSACTION", 77),
            ]
        )
    )
    assert signals_of(make_event(total_lag=5_000, partitions=bad)).scalable_lag == 4_800
    assert signals_of(make_event(total_lag=50, partitions=bad)).scalable_lag == 0
    assert signals_of(make_event(total_lag=None, partitions=bad)).scalable_lag is None
    assert signals_of(make_event(total_lag=7, partitions=(), max_lag=None)) == Signals(scalable_lag=7)


def test_a_group_that_burrow_does_not_know_has_no_signals() -> None:
    assert signals_of(make_event(status_text="NOTFOUND", total_lag=0)) == Signals()


def test_the_recorded_stop_has_its_lag_in_seconds() -> None:
    event = parse_webhook(recorded_body("karrot_v1.9.5_err_stop.json"), observed_at_ms=1_746_950_405_000)
    assert signals_of(event) == Signals(
        scalable_lag=52, produce_rate=26.272059, consume_rate=0.0, lag_seconds=1009.924, catch_up_seconds=None
    )


def test_the_signals_of_a_real_burrow_show_a_group_that_falls_behind_and_recovers() -> None:
    events = [parse_webhook(body, observed_at_ms=int(at * 1000)) for at, body in recorded_posts()]
    signals = [signals_of(event) for event in events if event.consumer == "skewed-consumer-group"]
    assert [(each.scalable_lag, each.lag_seconds, each.catch_up_seconds) for each in signals[:5]] == [
        (759, 48.684, None),
        (808, 84.34, None),
        (0, 137.498, None),
        (0, 0.0, 0.0),
        (0, 0.0, 0.0),
    ]


@given(event_strategy())
def test_no_event_gives_a_nan_or_infinity(event: LagEvent) -> None:
    signals = signals_of(event)
    numbers = [signals.produce_rate, signals.consume_rate, signals.lag_seconds, signals.catch_up_seconds]
    assert all(number is None or (math.isfinite(number) and number >= 0) for number in numbers)
    assert all(seconds is None or seconds <= TEN_YEARS for seconds in numbers[2:])
    assert signals.scalable_lag is None or 0 <= signals.scalable_lag <= (event.total_lag or 0)
    assert not (signals.lag_seconds_extrapolated and signals.lag_seconds is None)


@pytest.mark.parametrize("produce_rate", [5.0, 20.0])
@pytest.mark.parametrize("commit_seconds", [5, 10, 30])
def test_the_mean_error_is_within_a_tenth_from_5_messages_a_second(produce_rate: float, commit_seconds: float) -> None:
    errors = mean_signal_errors(produce_rate, commit_seconds, seeds=4)
    assert errors.produce_rate < 0.1
    assert errors.consume_rate < 0.1
    assert errors.lag_seconds < 0.1
    assert errors.known == 1.0


def test_a_partition_without_data_causes_no_error() -> None:
    empty = PartitionLag(topic="orders", partition=0, status_text="OK", current_lag=None)
    assert signals_of(make_event(max_lag=empty, partitions=(), total_lag=0)) == Signals(scalable_lag=0)


def scalable_age(
    total_lag: int, *stuck: PartitionLag, age: float, partition: int = 0, partitions: int = 5
) -> float | None:
    """Return the scalable lag in seconds of a group whose oldest unread message, of this age, is on ``partition``."""
    event = make_event(total_lag=total_lag, partitions=stuck, partition_count=partitions)
    known = LagAge(age, AgeKind.EXACT, TopicPartition("orders.v1", partition))
    return scalable_lag_seconds(event, signals_of(event).with_age(known))


STUCK = make_partition(partition=0, status_text="STALL", current_lag=1_000)


def test_the_age_of_a_stuck_message_is_replaced_by_an_estimate_for_the_other_partitions() -> None:
    assert scalable_age(1_000, STUCK, age=500) == 0
    # 400 messages on 4 partitions, 100 each; the stuck partition got that many in a tenth of the 500 s.
    assert scalable_age(1_400, STUCK, age=500) == 50
    assert scalable_age(1_000_000, STUCK, age=500) == 500
    assert scalable_age(3_000, STUCK, STUCK._replace(partition=1), age=500, partitions=2) == 500


def test_the_age_of_a_partition_that_tasks_can_help_stays_as_it_is() -> None:
    assert scalable_age(1_400, STUCK, age=500, partition=3) == 500
    assert scalable_age(1_400, age=500) == 500
    assert scalable_age(0, STUCK._replace(current_lag=0), age=0) == 0


def test_a_scalable_age_is_unknown_if_the_age_is_unknown() -> None:
    event = make_event(max_lag=None)
    assert scalable_lag_seconds(event, signals_of(event)) is None


@given(event_strategy())
def test_a_scalable_age_is_never_above_the_age(event: LagEvent) -> None:
    signals = signals_of(event)
    scalable = scalable_lag_seconds(event, signals)
    assert (scalable is None) == (signals.lag_seconds is None)
    assert scalable is None or 0 <= scalable <= (signals.lag_seconds or 0)
