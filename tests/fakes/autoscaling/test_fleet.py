"""The tasks of a service that scales, and the signals of its metrics."""

from support.autoscaling.fleet import Consumers, Fleet, Signal, signal_of
from support.autoscaling.lag_stack import LAG_METRIC
from support.autoscaling.metric_statistics import MetricIdentity


def test_each_metric_has_its_value() -> None:
    assert signal_of(LAG_METRIC) is Signal.LAG
    assert signal_of(MetricIdentity("Karrot", "LagSeconds")) is Signal.LAG_SECONDS
    assert signal_of(MetricIdentity("Karrot", "Heartbeat")) is Signal.HEARTBEAT
    assert signal_of(MetricIdentity("ECS/ContainerInsights", "RunningTaskCount")) is Signal.RUNNING
    assert signal_of(MetricIdentity("Mine", "CPUUtilization")) is None


def test_a_task_starts_late_and_leaves_at_once() -> None:
    fleet = Fleet(Consumers(rate_per_task=10, start_s=60, partitions=4), 1)
    assert fleet.consumable(0, 10) == 100
    fleet.scale(3, 10)
    assert (fleet.desired, fleet.running) == (3, 1)
    assert fleet.consumable(60, 70) == 100
    assert fleet.consumable(70, 80) == 300
    fleet.scale(5, 80)
    assert fleet.consumable(140, 150) == 400  # a task without a partition has nothing to read
    fleet.scale(6, 160)
    fleet.scale(2, 170)
    assert (fleet.desired, fleet.running) == (2, 2)
