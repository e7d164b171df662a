"""Each rendered recipe stops scaling when the monitor falls silent. The alarms are a model's, not AWS's."""

from typing import TYPE_CHECKING, Any

import pytest

from karrot.render.scaling_recipe import Scaling
from support.autoscaling.alarm_model import AlarmState
from support.autoscaling.lag_stack import alarm_states
from support.autoscaling.metric_math_evaluator import Gaps
from support.autoscaling.metric_statistics import RecordedMetrics
from support.autoscaling.scaling_recipes import RECIPES, make_scaling, render_cloudformation
from support.autoscaling.template_to_stack import parse_stack

if TYPE_CHECKING:
    from support.autoscaling.scalable_target import Stack

MINUTE = 60
RANGE = 18 * MINUTE
"""The evaluation range of the alarms that scale in for target tracking: 15 points and a few more, because real points
count before missing ones. Until then the last low points count."""


class Service:
    """Runs the tasks that the stack asks for; CloudWatch has AWS's own points, and Karrot's while Karrot lives."""

    def __init__(self, asked: Scaling, gaps: Gaps, expression: str | None = None) -> None:
        limits = None if asked.on_ecs else (asked.least, asked.max_tasks)
        template = render_cloudformation(asked)
        if expression is not None:
            policy = template["Resources"]["LagTracking"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
            policy["CustomizedMetricSpecification"]["Metrics"][0]["Expression"] = expression
        self.stack: Stack = parse_stack(template, limits=limits, gaps=gaps)
        self.resolution = 1 if asked.high_resolution else 60
        self.metrics = RecordedMetrics()
        self.tasks = 4
        self.now = 0

    def runs(self, minutes: int, lag: float | None) -> None:
        """Let time pass; a lag of ``None`` means that Karrot publishes nothing."""
        for _ in range(minutes * 6):
            self.now += 10
            for metric in self.stack.metrics:
                for value in self.values_of(metric.namespace, metric.name, lag):
                    self.metrics.put(metric, self.now - 1, value, self.resolution)
            self.tasks = self.stack.tick(self.now, self.metrics, self.tasks)

    def values_of(self, namespace: str, name: str, lag: float | None) -> list[float]:
        if namespace == "AWS/ECS":
            return [] if self.now % 60 else [50.0] * self.tasks  # one sample per task and minute
        if namespace != "Karrot":
            return [float(self.tasks)] if self.tasks or namespace == "AWS/AutoScaling" else []
        return [] if lag is None else [1.0 if name == "Heartbeat" else lag]

    def changes_after(self, time: int) -> list[Any]:
        return [each for each in self.stack.activities if each.at_s > time]


@pytest.mark.parametrize("gaps", Gaps)
@pytest.mark.parametrize("lag", [0.0, 1e9])
@pytest.mark.parametrize("name", RECIPES)
def test_silence_scales_nothing_once_the_evaluation_range_has_passed(name: str, lag: float, gaps: Gaps) -> None:
    service = Service(RECIPES[name], gaps)
    service.runs(3, lag)
    silent_since = service.now
    service.runs(60, None)
    assert service.changes_after(silent_since + RANGE) == []
    if RECIPES[name].shared:
        assert alarm_states(service.stack)["HeartbeatAlarm"] is AlarmState.ALARM


@pytest.mark.parametrize("name", [name for name in RECIPES if "-step-" in name])
def test_a_few_low_points_before_the_silence_remove_no_task(name: str) -> None:
    service = Service(RECIPES[name], Gaps.ZERO)
    service.runs(10, 0.0)
    service.runs(60, None)
    assert service.stack.activities == []


@pytest.mark.parametrize("name", RECIPES)
def test_a_burst_scales_out_and_a_quiet_time_scales_in_again(name: str) -> None:
    service = Service(RECIPES[name], Gaps.ZERO)
    service.runs(20, 1e9)
    assert service.tasks == 12
    service.runs(240, 0.0)
    assert service.tasks == RECIPES[name].least


@pytest.mark.parametrize("name", [name for name in RECIPES if "-zero-" in name])
@pytest.mark.parametrize("gaps", Gaps)
def test_only_unread_messages_wake_up_a_service_at_zero(name: str, gaps: Gaps) -> None:
    service = Service(RECIPES[name], gaps)
    service.tasks = 0
    service.runs(15, 0.0)
    service.runs(15, None)
    assert service.tasks == 0
    service.runs(6, 20.0)
    assert service.tasks == 1


@pytest.mark.parametrize(
    ("expression", "read_as_zero"),
    [
        ("lag / running", (1, 1)),
        ("lag / IF(running < 1, 1, running)", (1, 1)),  # MAX([running, 1]), which the model does not have
        ("FILL(lag, REPEAT) / running", (1, 1)),
        pytest.param(None, (3, 10), id="the rendered expression"),
    ],
)
def test_metric_math_gives_the_documented_values_in_an_outage_of_the_monitor(
    expression: str | None, read_as_zero: tuple[int, int]
) -> None:
    """Check both readings of a missing value, with two lags. The rendered expression is safe in both."""
    asked = make_scaling(recipe="target-tracking", target_lag_per_task=6000)
    left: dict[Gaps, list[int]] = {}
    for gaps in Gaps:
        for minutes, lag in ((2, 12_000.0), (5, 60_000.0)):
            service = Service(asked, gaps, expression)
            service.runs(minutes, lag)
            service.runs(120, None)
            left.setdefault(gaps, []).append(service.tasks)
    assert left == {Gaps.ZERO: [*read_as_zero], Gaps.DROPPED: [3, 10]}
