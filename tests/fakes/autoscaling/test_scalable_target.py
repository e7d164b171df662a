"""Policies, cooldowns and limits over time. An alarm on lag calls each policy."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.autoscaling.alarm_model import AlarmState, Comparison, Treatment
from support.autoscaling.lag_stack import LAG_METRIC, alarm_states, make_alarm, make_stack, step_policy, tracking_policy
from support.autoscaling.metric_statistics import RecordedMetrics
from support.autoscaling.policies import Adjustment, ScaleIn, StepAdjustment
from support.autoscaling.scalable_target import Activity, NotScaled, Stack

ADD_ONE = StepAdjustment(0, None, 1)
ADD_TWO = StepAdjustment(0, None, 2)
TAKE_ONE = StepAdjustment(None, 0, -1)
AT_ONCE = {"evaluation_periods": 1, "datapoints_to_alarm": 1}


class Service:
    """A stack and the service it scales. Every minute its lag is published, then the alarms are evaluated."""

    def __init__(self, stack: Stack, tasks: int) -> None:
        self.stack, self.tasks, self.now_s = stack, tasks, 0
        self.metrics = RecordedMetrics()

    def live(self, *lags: float | None) -> list[int]:
        """Return the desired tasks after each minute, one minute per lag; ``None`` is a minute without data."""
        return [self._minute(lag) for lag in lags]

    def _minute(self, lag: float | None) -> int:
        if lag is not None:
            self.metrics.put(LAG_METRIC, self.now_s, lag)
        for _ in range(6):
            self.now_s += 10
            self.tasks = self.stack.tick(self.now_s, self.metrics, self.tasks)
        return self.tasks


def stepping(tasks: int = 2, steps: Sequence[StepAdjustment] = (ADD_TWO,), cooldown_s: int = 60) -> Service:
    fifteen = {"evaluation_periods": 15, "datapoints_to_alarm": 15}
    stack = make_stack(
        step_policy("Out", *steps, cooldown_s=cooldown_s),
        step_policy("In", TAKE_ONE, cooldown_s=300),
        make_alarm("High", "Out", **AT_ONCE),
        make_alarm("Low", "In", comparison=Comparison.AT_MOST, threshold=10, **fifteen),
    )
    return Service(stack, tasks)


def tracking(tasks: int, target: float = 100, **settings: Any) -> Service:
    return Service(make_stack(tracking_policy(target=target, **settings)), tasks)


def test_an_action_repeats_every_minute_while_in_alarm_once_its_cooldown_is_over() -> None:
    service = stepping(cooldown_s=60)
    assert service.live(5000, 5000, 5000, 5000) == [4, 6, 8, 10]
    assert service.live(5000) == [10]
    assert service.stack.not_scaled == {NotScaled.AT_MAXIMUM: 1}


def test_the_same_step_within_the_cooldown_changes_nothing() -> None:
    service = stepping(cooldown_s=300)
    assert service.live(*[5000] * 7) == [4, 4, 4, 4, 4, 6, 6]


def test_a_larger_step_within_the_cooldown_adds_the_difference() -> None:
    """AWS's example: the first step added 2, the second step asks for 3, so 1 more is added."""
    service = stepping(steps=[StepAdjustment(0, 1000, 2), StepAdjustment(1000, None, 3)], cooldown_s=300)
    assert service.live(1500, 2500, 2500) == [4, 5, 5]
    assert [each.after - each.before for each in service.stack.activities] == [2, 1]


def test_scale_in_waits_for_fifteen_minutes_and_then_for_its_cooldown() -> None:
    service = stepping(tasks=5)
    assert service.live(*[0] * 14) == [5] * 14
    assert service.live(*[0] * 11) == [4] * 5 + [3] * 5 + [2]


def test_a_scale_out_interrupts_the_cooldown_of_a_scale_in() -> None:
    service = stepping(tasks=5)
    assert service.live(*[0] * 15)[-1] == 4
    assert service.live(5000) == [6]


def test_an_activity_says_which_alarm_called_which_policy() -> None:
    service = stepping()
    service.live(5000)
    assert service.stack.activities == [Activity(60, "Out", "High", 2, 4)]


def test_a_value_that_no_step_covers_scales_nothing() -> None:
    service = Service(make_stack(step_policy("Out", StepAdjustment(500, None, 2)), make_alarm("High", "Out")), 2)
    assert service.live(0, 1100, 1100) == [2, 2, 2]
    assert alarm_states(service.stack) == {"High": AlarmState.ALARM}
    assert service.stack.not_scaled == {NotScaled.NO_STEP: 1}
    assert service.live(1500) == [4]


def test_an_alarm_without_a_policy_keeps_its_state() -> None:
    stack = make_stack(make_alarm("Silence", treatment=Treatment.BREACHING))
    stack.tick(60, RecordedMetrics(), 1)
    assert alarm_states(stack) == {"Silence": AlarmState.ALARM}


def test_an_auto_scaling_group_removes_nothing_while_instances_warm_up() -> None:
    stack = make_stack(
        step_policy("Out", ADD_ONE, cooldown_s=120),
        step_policy("In", TAKE_ONE, cooldown_s=0),
        make_alarm("High", "Out", **AT_ONCE),
        make_alarm("Low", "In", comparison=Comparison.AT_MOST, threshold=0, **AT_ONCE),
        scale_out_blocks_scale_in=True,
    )
    assert Service(stack, 3).live(5000, 5000, 5000, 0, 0, 0, 0) == [4, 4, 5, 5, 4, 3, 2]


def test_scaling_from_zero_adds_exactly_one_task() -> None:
    wake = step_policy("Wake", ADD_ONE, adjustment=Adjustment.EXACT)
    stack = make_stack(wake, make_alarm("High", "Wake", threshold=1, **AT_ONCE), minimum=0)
    assert Service(stack, 0).live(0, 0, 7, 7) == [0, 0, 1, 1]


def test_target_tracking_takes_three_minutes_and_scales_in_proportion() -> None:
    service = tracking(tasks=2)
    assert service.live(250, 250) == [2, 2]
    assert service.live(250) == [5]
    assert service.live(250) == [5]  # the added tasks count while the cooldown lasts
    assert service.live(400) == [8]  # in proportion to the two before it
    assert service.live(5000) == [10]


def test_target_tracking_creates_its_own_two_alarms() -> None:
    alarms = make_stack(tracking_policy(target=60)).alarms.values()
    assert {each.name: (each.threshold, each.datapoints_to_alarm, each.evaluation_periods) for each in alarms} == {
        "Track-AlarmHigh": (60, 3, 3),
        "Track-AlarmLow": (54, 15, 15),
    }


def test_target_tracking_scales_in_after_fifteen_minutes_below_nine_tenths() -> None:
    service = tracking(tasks=5)
    assert service.live(*[95] * 20) == [5] * 20
    assert service.live(*[89] * 14) == [5] * 14
    assert service.live(89) == [5]  # 5 * 0.89 rounded up is 5
    service = tracking(tasks=5)
    assert service.live(*[40] * 14)[-1] == 5
    assert service.live(*[40] * 6) == [4] * 5 + [3]
    assert tracking(tasks=5, scale_in=ScaleIn.PROPORTIONAL).live(*[40] * 15)[-1] == 2


def test_silence_scales_nothing_once_the_range_has_passed() -> None:
    """The monitor is dead: the alarms lose their last points and then have no data."""
    for service in (stepping(tasks=4), tracking(tasks=4), tracking(tasks=4, target=100_000)):
        service.live(*[2000] * 20)
        service.live(*[None] * 20)
        tasks, done = service.tasks, len(service.stack.activities)
        assert service.live(*[None] * 60) == [tasks] * 60
        assert len(service.stack.activities) == done
        assert set(alarm_states(service.stack).values()) == {AlarmState.INSUFFICIENT_DATA}


def test_two_tracking_policies_scale_out_with_either_and_scale_in_only_together() -> None:
    service = Service(make_stack(tracking_policy("Few", 100), tracking_policy("Many", 1000)), 2)
    assert service.live(150, 150, 150) == [2, 2, 3]
    service = Service(make_stack(tracking_policy("Few", 100), tracking_policy("Many", 1000)), 5)
    assert service.live(*[95] * 30) == [5] * 30
    assert alarm_states(service.stack)["Many-AlarmLow"] is AlarmState.ALARM
    assert service.live(*[50] * 15)[-1] == 4


def test_a_high_resolution_alarm_is_evaluated_every_ten_seconds() -> None:
    stack = make_stack(step_policy("Out", ADD_TWO), make_alarm("High", "Out", period_s=10, datapoints_to_alarm=3))
    metrics = RecordedMetrics()
    seen = []
    for now_s in range(10, 70, 10):
        metrics.put(LAG_METRIC, now_s - 10, 5000, resolution_s=1)
        seen.append(stack.tick(now_s, metrics, 2))
    assert seen == [2, 2, 4, 2, 2, 2]  # in alarm after 30 s; the action comes again after a minute


def test_standard_metrics_leave_a_high_resolution_alarm_without_data() -> None:
    stack = make_stack(step_policy("Out", ADD_TWO), make_alarm("High", "Out", period_s=10))
    metrics = RecordedMetrics()
    for now_s in range(10, 120, 10):
        metrics.put(LAG_METRIC, now_s - 10, 5000)
        assert stack.tick(now_s, metrics, 2) == 2
    assert alarm_states(stack) == {"High": AlarmState.INSUFFICIENT_DATA}


lags = st.lists(st.none() | st.sampled_from([0.0, 5.0, 50.0, 999.0, 1000.0, 3000.0, 50_000.0]), max_size=80)
services: list[Callable[[int], Service]] = [
    lambda tasks: stepping(tasks, cooldown_s=180),
    tracking,
    lambda tasks: tracking(tasks, scale_in=ScaleIn.PROPORTIONAL, in_cooldown_s=600),
]


@given(lags=lags, tasks=st.integers(0, 30), make=st.sampled_from(services))
def test_the_capacity_stays_within_its_limits(
    lags: Sequence[float | None], tasks: int, make: Callable[[int], Service]
) -> None:
    assert all(1 <= each <= 10 for each in make(tasks).live(*lags))


@given(lags=lags, tasks=st.integers(1, 10), make=st.sampled_from(services))
def test_a_scale_in_cooldown_blocks_scale_in_unless_a_scale_out_followed(
    lags: Sequence[float | None], tasks: int, make: Callable[[int], Service]
) -> None:
    service = make(tasks)
    service.live(*lags)
    done = service.stack.activities
    for before, after in pairwise(done):
        if before.after < before.before and after.after < after.before:
            cooldown_s = service.stack.policies[before.policy].in_cooldown_s
            assert after.at_s - before.at_s >= cooldown_s


@given(lags=lags, tasks=st.integers(1, 10))
def test_an_equal_step_does_not_repeat_within_the_cooldown(lags: Sequence[float | None], tasks: int) -> None:
    service = stepping(tasks, cooldown_s=180)
    service.live(*lags)
    outs = [each for each in service.stack.activities if each.after > each.before]
    assert all(later.at_s - sooner.at_s >= 180 for sooner, later in pairwise(outs))


@given(lags=lags)
def test_no_activity_happens_without_data(lags: Sequence[float | None]) -> None:
    for service in (stepping(tasks=3), tracking(tasks=3)):
        assert service.live(*[None for _ in lags]) == [3 for _ in lags]
