"""Runs a scalable target with its policies and alarms, and decides its capacity.

The model follows AWS's documentation. It leaves out anticipated flapping, deployments (which pause scale-in),
scheduled actions, task protection and delays of the service itself.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from support.autoscaling.alarm_model import Alarm, AlarmState, AlarmWatch
from support.autoscaling.metric_statistics import MetricIdentity, RecordedMetrics
from support.autoscaling.policies import Policy, TrackingPolicy


class NotScaled(StrEnum):
    """The reasons why an invoked policy changed nothing. The first two are AWS's own words."""

    AT_MAXIMUM = "AlreadyAtMaxCapacity"
    AT_MINIMUM = "AlreadyAtMinCapacity"
    NO_STEP = "NoStepForMetricValue"
    COOLDOWN = "Cooldown"
    OTHERS_ARE_BUSY = "AnotherPolicyNeedsTheCapacity"
    NO_CHANGE = "AlreadyAtDesiredCapacity"


class Activity(NamedTuple):
    """One change of the desired capacity."""

    at_s: float
    policy: str
    alarm: str
    before: int
    after: int


class _Ask(NamedTuple):
    policy: Policy
    alarm: str
    capacity: int


class _ScaleOut(NamedTuple):
    until_s: float
    before: int
    reached: int


class _Cooldowns:
    """The active cooldowns: a recent change of the capacity limits the next changes.

    See the Application Auto Scaling User Guide, "How step scaling works" and "How target tracking scaling works"
    (cooldown periods). During the cooldown of a scale-out, the same policy can scale out only to a larger capacity. The
    policy counts from the capacity before the first scale-out. A scale-in blocks further scale-ins until its cooldown
    ends or a scale-out interrupts the cooldown. The guide does not say whether a scale-in waits for the cooldown of a
    scale-out. In this model, a scale-in of ECS tasks does not wait. An Auto Scaling group removes no instance while
    instances warm up (EC2 guide, "Step and simple scaling policies").

    The cooldown of a scale-out begins when the scale-out has succeeded: ``activity_s`` after the decision.
    """

    def __init__(self, *, scale_out_blocks_scale_in: bool = False, activity_s: float = 0) -> None:
        self._out: dict[str, _ScaleOut] = {}
        self._in_until_s: float | None = None
        self._scale_out_blocks_scale_in = scale_out_blocks_scale_in
        self._activity_s = activity_s

    def base(self, policy: Policy, now_s: float, tasks: int) -> int:
        """The capacity that a scale-out of the policy counts from."""
        running = self._running(policy, now_s)
        return tasks if running is None else min(running.before, tasks)

    def allows_out(self, policy: Policy, now_s: float, asked: int) -> bool:
        """Whether the policy may increase the capacity to this number."""
        running = self._running(policy, now_s)
        return running is None or asked > running.reached

    def allows_in(self, now_s: float) -> bool:
        """Whether any policy may reduce the capacity."""
        warming = any(now_s < running.until_s for running in self._out.values())
        if self._scale_out_blocks_scale_in and warming:
            return False
        return self._in_until_s is None or now_s >= self._in_until_s

    def scaled_out(self, policy: Policy, now_s: float, before: int, after: int) -> None:
        """Record a scale-out, which ends the cooldown of a scale-in."""
        base = self.base(policy, now_s, before)
        self._out[policy.name] = _ScaleOut(now_s + self._activity_s + policy.out_cooldown_s, base, after)
        self._in_until_s = None

    def scaled_in(self, policy: Policy, now_s: float) -> None:
        """Record a scale-in."""
        self._in_until_s = now_s + policy.in_cooldown_s

    def _running(self, policy: Policy, now_s: float) -> _ScaleOut | None:
        running = self._out.get(policy.name)
        return running if running is not None and now_s < running.until_s else None


class Stack:
    """Scales between ``minimum`` and ``maximum``. Call `tick` every 10 simulated seconds, or at least every minute.

    A scale-out takes ``activity_s``. ``minimum_at`` is the minimum at a time, if it has a schedule. ``activities`` are
    the changes, oldest first. ``not_scaled`` counts the reasons why policies changed nothing.
    """

    def __init__(
        self,
        policies: Iterable[Policy],
        alarms: Iterable[Alarm],
        *,
        minimum: int,
        maximum: int,
        scale_out_blocks_scale_in: bool = False,
        activity_s: float = 0,
        minimum_at: Callable[[float], int] | None = None,
    ) -> None:
        self.minimum, self.maximum = minimum, maximum
        self._minimum_at = minimum_at
        self._least = minimum
        self.policies: Mapping[str, Policy] = {policy.name: policy for policy in policies}
        self._watches = {alarm.name: AlarmWatch(alarm) for alarm in alarms}
        self._cooldowns = _Cooldowns(scale_out_blocks_scale_in=scale_out_blocks_scale_in, activity_s=activity_s)
        self.activities: list[Activity] = []
        self.not_scaled: Counter[NotScaled] = Counter()

    @property
    def alarms(self) -> Mapping[str, Alarm]:
        """Every alarm by name, including alarms that scale nothing."""
        return {name: watch.alarm for name, watch in self._watches.items()}

    @property
    def metrics(self) -> frozenset[MetricIdentity]:
        """Every metric that its alarms read."""
        return frozenset().union(*(alarm.query.metrics for alarm in self.alarms.values()))

    def tick(self, now_s: float, metrics: RecordedMetrics, tasks: int) -> int:
        """The new desired capacity. ``tasks`` is the current one. ``metrics`` has the points that have arrived."""
        for watch in self._watches.values():
            watch.look(metrics, now_s)
        if self._minimum_at is not None:
            self._least = self._minimum_at(now_s)
        present = self._within(tasks)
        if present > tasks:
            self.activities.append(Activity(now_s, "minimum", "schedule", tasks, present))
        outs, ins = self._asks(now_s, present)
        if outs:
            return self._scale_out(now_s, present, outs)
        return self._scale_in(now_s, present, ins) if ins else present

    def _asks(self, now_s: float, tasks: int) -> tuple[list[_Ask], list[_Ask]]:
        """The capacities that policies with due actions request: to scale out, and to scale in."""
        outs: list[_Ask] = []
        ins: list[_Ask] = []
        for watch in self._watches.values():
            for policy in (self.policies[name] for name in watch.due(now_s)):
                more = policy.asks(self._cooldowns.base(policy, now_s, tasks), watch.alarm, watch.latest)
                less = policy.asks(tasks, watch.alarm, watch.latest)
                if more is None or less is None:
                    self.not_scaled[NotScaled.NO_STEP] += 1
                elif more > self._cooldowns.base(policy, now_s, tasks):
                    outs.append(_Ask(policy, watch.alarm.name, more))
                elif less < tasks:
                    ins.append(_Ask(policy, watch.alarm.name, less))
                else:
                    self.not_scaled[NotScaled.NO_CHANGE] += 1
        return outs, ins

    def _scale_out(self, now_s: float, tasks: int, asks: Sequence[_Ask]) -> int:
        """The largest allowed capacity. If any policy requests more, no policy scales in."""
        allowed = [ask for ask in asks if self._cooldowns.allows_out(ask.policy, now_s, ask.capacity)]
        if not allowed:
            self.not_scaled[NotScaled.COOLDOWN] += 1
            return tasks
        ask = max(allowed, key=lambda each: each.capacity)
        after = self._within(ask.capacity)
        if after <= tasks:
            self.not_scaled[NotScaled.AT_MAXIMUM if tasks == self.maximum else NotScaled.NO_CHANGE] += 1
            return tasks
        self._cooldowns.scaled_out(ask.policy, now_s, tasks, after)
        return self._note(now_s, ask, tasks, after)

    def _scale_in(self, now_s: float, tasks: int, asks: Sequence[_Ask]) -> int:
        ready = [ask for ask in asks if not self._is_held(ask.policy)]
        after = self._within(max((ask.capacity for ask in ready), default=tasks))
        if not ready:
            self.not_scaled[NotScaled.OTHERS_ARE_BUSY] += 1
        elif after >= tasks:
            self.not_scaled[NotScaled.AT_MINIMUM] += 1
        elif not self._cooldowns.allows_in(now_s):
            self.not_scaled[NotScaled.COOLDOWN] += 1
        else:
            ask = max(ready, key=lambda each: each.capacity)
            self._cooldowns.scaled_in(ask.policy, now_s)
            return self._note(now_s, ask, tasks, after)
        return tasks

    def _is_held(self, policy: Policy) -> bool:
        """Whether all target tracking policies agree to scale in, which AWS requires."""
        tracking = [each for each in self.policies.values() if isinstance(each, TrackingPolicy)]
        return policy in tracking and any(
            self._watches[alarm.name].state is not AlarmState.ALARM
            for each in tracking
            for alarm in each.alarms()
            if not alarm.comparison.upwards
        )

    def _note(self, now_s: float, ask: _Ask, before: int, after: int) -> int:
        self.activities.append(Activity(now_s, ask.policy.name, ask.alarm, before, after))
        return after

    def _within(self, tasks: int) -> int:
        return min(max(tasks, self._least), self.maximum)
