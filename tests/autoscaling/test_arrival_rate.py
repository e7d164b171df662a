"""The arrival rate that is computed from a recorded lag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.autoscaling.arrival_rate import LagSample, Load, loaded
from karrot.autoscaling.scalable_target import Stack
from karrot.autoscaling.simulation import Consumers, simulate


def load_of(*samples: tuple[float, ...], tasks: int = 2, rate: float = 100, kept_up: float | None = None) -> Load:
    return loaded([LagSample(*each) for each in samples], tasks=tasks, rate_per_task=rate, kept_up_rate=kept_up)


def test_arrivals_are_the_consumed_messages_plus_the_growth_of_the_lag() -> None:
    assert load_of((0, 0), (10, 1000), (20, 1000), (30, 0)).rates == (300, 200, 100)


def test_a_group_that_kept_up_has_arrivals_equal_to_its_own_rate() -> None:
    assert load_of((0, 0), (10, 50), (20, 90_000), (30, 40), kept_up=70).rates == (70, 9195, 0)


def test_given_arrivals_are_used_unchanged() -> None:
    assert load_of((0, 0, 40), (10, 0, 50), (20, 700)).rates == (40, 50)


def test_a_lag_that_fell_too_fast_contradicts_the_rate() -> None:
    load = load_of((0, 10_000), (10, 0), (20, 0))
    assert (load.rates, load.contradictions) == ((0, 200), 1)


def test_samples_may_come_in_any_order_and_the_last_one_of_a_moment_counts() -> None:
    load = load_of((20, 5), (0, 1), (10, 7), (10, 3))
    assert load.samples == (LagSample(0, 1), LagSample(10, 3), LagSample(20, 5))
    assert (load.longest_gap_s, load.peak) == (10, LagSample(20, 5))


def test_a_gap_of_three_usual_intervals_and_three_minutes_is_a_silence() -> None:
    load = load_of((0, 0), (60, 0), (120, 0), (300, 0), (360, 0), (600, 0))
    assert [at for at in range(-60, 700, 60) if load.is_silent(at)] == [420, 480, 540]
    hourly = load_of((0, 0), (3600, 0), (7200, 0), (3600 * 6, 0))
    assert [hourly.is_silent(3600 * hour + 60) for hour in range(7)] == [False, False, True, True, True, True, False]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param([], id="no sample"),
        pytest.param([LagSample(0, 1)], id="one sample"),
        pytest.param([LagSample(0, 1), LagSample(0, 2)], id="two samples of one moment"),
    ],
)
def test_samples_of_one_moment_are_refused(samples: list[LagSample]) -> None:
    with pytest.raises(ValueError, match="at least two samples at different times"):
        loaded(samples, tasks=1, rate_per_task=1)


rises = st.lists(st.integers(-1900, 20_000), min_size=1, max_size=30)


@given(rises=rises, first=st.integers(0, 10_000), apart=st.sampled_from([10, 30, 60]))
def test_the_recorded_number_of_tasks_reproduces_the_recorded_lag(rises: list[int], first: int, apart: int) -> None:
    lags = [first]
    for rise in rises:
        lags.append(max(0, lags[-1] + rise))
    load = load_of(*((at * apart, lag) for at, lag in enumerate(lags)))
    run = simulate(Stack((), (), minimum=2, maximum=2), load, Consumers(rate_per_task=100), tasks=2)
    assert run.summary.last_lag == pytest.approx(lags[-1], abs=1e-3)
    assert run.summary.peak_lag == pytest.approx(max(lags), abs=1e-3)
    assert load.contradictions == 0
