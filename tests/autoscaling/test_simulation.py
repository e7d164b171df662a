"""The simulation of a stack under a load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.autoscaling.arrival_rate import LagSample, Load, loaded
from karrot.autoscaling.metric_math_evaluator import Expression, MathQuery
from karrot.autoscaling.metric_statistics import MetricIdentity, MetricQuery
from karrot.autoscaling.policies import ScaleIn, StepAdjustment
from karrot.autoscaling.scalable_target import Stack
from karrot.autoscaling.simulation import (
    Consumers,
    Fleet,
    MessageBacklog,
    ObservedBacklog,
    Publishing,
    Run,
    Signal,
    signal_of,
    simulate,
)
from karrot.autoscaling.simulation_chart import chart_of
from support.autoscaling.lag_stack import LAG_METRIC, make_alarm, make_stack, step_policy, tracking_policy

RATE = 100
ADD_TWO = StepAdjustment(0, None, 2)


def load_of(*minutes: float) -> Load:
    """Return a load with these messages per second, one value per minute."""
    return loaded([LagSample(at * 60, 0, rate) for at, rate in enumerate([*minutes, 0.0])], tasks=1, rate_per_task=RATE)


def tracking(target: float = 5000, scale_in: ScaleIn = ScaleIn.ONE) -> Stack:
    return make_stack(tracking_policy(target=target, out_cooldown_s=60, scale_in=scale_in))


def run_of(stack: Stack, load: Load, **consumers: float) -> Run:
    return simulate(stack, load, Consumers(rate_per_task=RATE, **consumers), tasks=1)  # type: ignore[arg-type]


BURST = load_of(*[80] * 10, *[600] * 20, *[80] * 120)


def test_a_burst_adds_tasks_and_its_end_removes_them() -> None:
    summary = run_of(tracking(), BURST).summary
    assert summary.most_tasks == 10
    assert summary.last_lag == 0
    assert run_of(tracking(), BURST).moments[-1].desired == 1
    still = run_of(Stack((), (), minimum=1, maximum=1), BURST).summary
    assert still.peak_lag == 20 * 60 * 500
    assert summary.peak_lag < still.peak_lag / 3
    assert summary.peak_lag_seconds < still.peak_lag_seconds / 3


def test_task_hours_count_every_task_that_aws_bills() -> None:
    run = run_of(tracking(), BURST)
    paid = sum(
        each.desired * (later.at_s - each.at_s) for each, later in zip(run.moments, run.moments[1:], strict=False)
    )
    assert run.summary.task_hours == pytest.approx(paid / 3600, rel=0.05)
    assert run.summary.at_maximum_s > 0


def test_a_recipe_without_a_minimum_scales_up_and_down_repeatedly() -> None:
    """A lag of zero does not show how busy the tasks are, so removed tasks are soon needed again."""
    summary = run_of(tracking(), load_of(*[150] * 180)).summary
    assert summary.flaps > 1
    summary = run_of(tracking(scale_in=ScaleIn.PROPORTIONAL), load_of(*[150] * 180)).summary
    assert summary.flaps > 1


def test_tasks_beyond_the_partitions_do_nothing() -> None:
    few, many = run_of(tracking(), BURST, partitions=2), run_of(tracking(), BURST)
    assert few.summary.peak_lag > many.summary.peak_lag
    assert few.summary.most_tasks == 10


def test_a_slow_start_and_rebalances_cost_lag() -> None:
    quick, slow = run_of(tracking(), BURST), run_of(tracking(), BURST, start_s=300, rebalance_s=60)
    assert slow.summary.peak_lag > quick.summary.peak_lag


def test_a_metric_that_is_not_simulated_is_named() -> None:
    temperature = MetricQuery(MetricIdentity("Karrot", "Temperature"), "Maximum")
    run = run_of(make_stack(step_policy("Out", ADD_TWO), make_alarm("High", "Out", query=temperature)), BURST)
    assert [metric.name for metric in run.unknown_metrics] == ["Temperature"]
    assert run.activities == ()


def test_running_tasks_are_counted_by_the_points_of_their_cpu() -> None:
    cpu = MetricQuery(MetricIdentity("AWS/ECS", "CPUUtilization"), "SampleCount")
    query = MathQuery({"many": Expression.parse("IF(cpu < 3, 0, 1)"), "cpu": cpu}, "many")
    many = make_alarm("High", "Out", query=query, threshold=1, evaluation_periods=1, datapoints_to_alarm=1)
    idle = load_of(*[0] * 10)

    def activities(tasks: int) -> int:
        stack = make_stack(step_policy("Out", ADD_TWO), many)
        return len(simulate(stack, idle, Consumers(RATE), tasks=tasks).activities)

    assert activities(2) == 0
    assert activities(3) > 0


def test_each_metric_has_its_value() -> None:
    assert signal_of(LAG_METRIC) is Signal.LAG
    assert signal_of(MetricIdentity("Karrot", "LagSeconds")) is Signal.LAG_SECONDS
    assert signal_of(MetricIdentity("Karrot", "Heartbeat")) is Signal.HEARTBEAT
    assert signal_of(MetricIdentity("ECS/ContainerInsights", "RunningTaskCount")) is Signal.RUNNING
    assert signal_of(MetricIdentity("Mine", "CPUUtilization")) is None


def ages(load: Load, *, taken: float) -> tuple[list[float | None], list[float]]:
    """Return the ages that Karrot knows and the true ages, every 30 s, if ``taken`` messages are read per second."""
    backlog = MessageBacklog()
    observed = ObservedBacklog(load, backlog)
    known, true = [], []
    for now_s in range(30, int(load.end_s) + 1, 30):
        for end_s in range(now_s - 20, now_s + 1, 10):
            backlog.add(end_s - 10, end_s, load.arrived(end_s - 10, end_s))
            backlog.take(10 * taken)
        known.append(observed.signals(now_s).get(Signal.LAG_SECONDS))
        true.append(backlog.age(now_s))
    return known, true


def test_the_simulated_karrot_knows_the_age_of_a_batch_while_its_producer_is_idle() -> None:
    known, true = ages(load_of(0, 6000, *[0] * 60), taken=100)
    assert max(true) > 3400
    assert known == [pytest.approx(age, abs=30) for age in true]


@given(
    rates=st.lists(st.integers(0, 2000), min_size=1, max_size=40).map(lambda rates: [100.0, *map(float, rates)]),
    taken=st.integers(1, 2000),
)
def test_the_simulated_karrot_knows_every_age_to_within_half_a_minute_or_two_percent(
    rates: list[float], taken: int
) -> None:
    for known, true in zip(*ages(load_of(*rates), taken=taken), strict=True):
        assert known == pytest.approx(true, abs=30, rel=0.02)


def test_a_backlog_of_unknown_age_gives_a_lower_bound() -> None:
    load, backlog = loaded([LagSample(0, 5000, 0), LagSample(600, 5000, 0)], tasks=1, rate_per_task=1), MessageBacklog()
    backlog.add(0, 0, 5000)
    observed = ObservedBacklog(load, backlog)
    assert [observed.signals(at_s)[Signal.LAG_SECONDS] for at_s in (30, 600)] == [30, 600]


def test_nothing_is_scaled_in_a_silence_of_the_recording() -> None:
    """An alarm counts older points for a while, so the first minutes of the silence are left out."""
    minutes = [LagSample(60 * at, 0, 700) for at in (*range(8), *range(38, 60))]
    run = run_of(tracking(), loaded(minutes, tasks=1, rate_per_task=RATE))
    scaled = [activity.at_s / 60 for activity in run.activities]
    assert [at for at in scaled if 12 <= at < 38] == []
    assert min(scaled) < 8
    assert max(scaled) > 38


def test_high_resolution_reacts_sooner() -> None:
    out = step_policy("Out", ADD_TWO)
    minute = make_stack(out, make_alarm("High", "Out", datapoints_to_alarm=3))
    tenth = make_stack(out, make_alarm("High", "Out", datapoints_to_alarm=3, period_s=10))
    quick = simulate(tenth, BURST, Consumers(RATE), tasks=1, publishing=Publishing(10, 10, 1)).activities[0]
    assert run_of(minute, BURST).activities[0].at_s - quick.at_s >= 90


def test_the_age_of_a_backlog_is_the_age_of_its_oldest_message() -> None:
    backlog = MessageBacklog()
    assert backlog.age(100) == 0
    backlog.add(0, 100, 1000)
    backlog.add(100, 110, 1000)
    backlog.take(500)
    assert (backlog.age(110), backlog.lag) == (60, 1500)
    backlog.take(750)
    assert backlog.age(110) == pytest.approx(7.5)
    backlog.take(10_000)
    assert (backlog.age(110), backlog.lag) == (0, 0)


def test_a_task_starts_late_and_leaves_at_once() -> None:
    fleet = Fleet(Consumers(rate_per_task=10, start_s=60, rebalance_s=5), 1)
    assert fleet.consumable(0, 10) == 100
    fleet.scale(3, 10)
    assert (fleet.desired, fleet.running) == (3, 1)
    assert fleet.consumable(60, 70) == 100
    assert fleet.consumable(70, 80) == 150  # three tasks from now on; they pause for half of the minute
    assert fleet.consumable(80, 90) == 300
    fleet.scale(5, 90)
    fleet.scale(2, 100)
    assert (fleet.desired, fleet.running) == (2, 2)


def test_a_chart_shows_the_whole_recording_within_its_borders() -> None:
    run = run_of(tracking(), BURST)
    chart = chart_of(run, BURST, maximum=10)
    assert [label.text for label in chart.tasks.ticks] == ["0", "2", "4", "6", "8", "10"]
    assert [label.text for label in chart.lag.ticks][:3] == ["0", "25k", "50k"]
    assert [label.text for label in chart.times] == ["00:00", "00:30", "01:00", "01:30", "02:00", "02:30"]
    assert chart.recorded.startswith(f"M{chart.left} ")
    assert chart.desired.endswith(f"H{chart.right}")
    assert chart.simulated_area.endswith("Z")


def test_a_long_recording_is_drawn_with_its_peaks() -> None:
    load = load_of(*[10] * 3000, 5000, *[10] * 3000)
    run = run_of(Stack((), (), minimum=1, maximum=1), load)
    assert len(run.moments) <= 1441
    assert max(moment.lag for moment in run.moments) == run.summary.peak_lag


@given(
    rates=st.lists(st.floats(0, 2000), min_size=1, max_size=40),
    tasks=st.integers(1, 10),
    scale_in=st.sampled_from(ScaleIn),
)
def test_no_message_is_lost_or_read_twice_and_no_limit_is_passed(
    rates: list[float], tasks: int, scale_in: ScaleIn
) -> None:
    load = load_of(*rates)
    run = simulate(tracking(scale_in=scale_in), load, Consumers(RATE), tasks=tasks)
    assert all(1 <= moment.desired <= 10 and 0 <= moment.running <= moment.desired for moment in run.moments)
    assert 0 <= run.summary.last_lag <= sum(rate * 60 for rate in rates) + 1e-3
    assert all(moment.lag_seconds <= moment.at_s + 1e-6 for moment in run.moments)
    chart_of(run, load, 10)
