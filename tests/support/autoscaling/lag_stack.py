"""Makes policies and alarms on the lag of one consumer group, with defaults that a test can change."""

from typing import Any

from support.autoscaling.alarm_model import Alarm, AlarmState, Comparison
from support.autoscaling.metric_statistics import MetricIdentity, MetricQuery
from support.autoscaling.policies import Adjustment, StepAdjustment, StepPolicy, TrackingPolicy
from support.autoscaling.scalable_target import Stack

__all__ = ["LAG_METRIC", "alarm_states", "make_alarm", "make_stack", "step_policy", "tracking_policy"]

LAG_METRIC = MetricIdentity.of("Karrot", "Lag", {"Cluster": "main", "ConsumerGroup": "orders"})
_MAXIMUM = MetricQuery(LAG_METRIC, "Maximum")


def make_stack(*parts: StepPolicy | TrackingPolicy | Alarm, minimum: int = 1, **settings: Any) -> Stack:
    """Make a stack of 1 to 10 tasks, with the alarms that target tracking adds."""
    policies = [part for part in parts if not isinstance(part, Alarm)]
    alarms = [part for part in parts if isinstance(part, Alarm)]
    for policy in policies:
        alarms += policy.alarms() if isinstance(policy, TrackingPolicy) else ()
    return Stack(policies, alarms, minimum=minimum, maximum=10, **settings)


def step_policy(name: str, *steps: StepAdjustment, cooldown_s: int = 60, **settings: Any) -> StepPolicy:
    """A step policy that changes the capacity."""
    chosen: dict[str, Any] = {"adjustment": Adjustment.CHANGE, **settings}
    return StepPolicy(name, steps=steps, out_cooldown_s=cooldown_s, in_cooldown_s=cooldown_s, **chosen)


def alarm_states(stack: Stack) -> dict[str, AlarmState]:
    """The state of every alarm by name."""
    return {name: watch.state for name, watch in stack._watches.items()}


def tracking_policy(name: str = "Track", target: float = 60, **settings: Any) -> TrackingPolicy:
    """Make a target tracking policy on the lag."""
    return TrackingPolicy(name, _MAXIMUM, target, **settings)


def make_alarm(name: str, policy: str | None = None, **settings: Any) -> Alarm:
    """Make an alarm on a lag of 1000 or more in 2 of 3 minutes; without a policy the alarm scales nothing."""
    chosen: dict[str, Any] = {
        "query": _MAXIMUM,
        "comparison": Comparison.AT_LEAST,
        "threshold": 1000,
        "evaluation_periods": 3,
        "datapoints_to_alarm": 2,
        "actions": {AlarmState.ALARM: (policy,)} if policy else {},
        **settings,
    }
    return Alarm(name, **chosen)
