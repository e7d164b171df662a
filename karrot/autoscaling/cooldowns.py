"""What has just been done holds back what may be done next.

Application Auto Scaling User Guide, "How step scaling works" and "How target tracking scaling works" (cooldown
periods): after a scale-out its policy grows the capacity again only for a larger one, counted from the capacity before
it, so that what was added is part of it. A scale-in blocks scale-ins until its cooldown is over, or until a scale-out
interrupts it. The guide does not say whether a scale-in waits for the cooldown of a scale-out: in ECS here it does not.
In an Auto Scaling group nothing is taken away while instances warm up (EC2 guide, "Step and simple scaling policies").
"""

from typing import NamedTuple

from karrot.autoscaling.policies import Policy

__all__ = ["Cooldowns"]


class _ScaleOut(NamedTuple):
    until_s: float
    before: int
    reached: int


class Cooldowns:
    """The cooldowns under way."""

    def __init__(self, *, scale_out_blocks_scale_in: bool = False) -> None:
        self._out: dict[str, _ScaleOut] = {}
        self._in_until_s: float | None = None
        self._scale_out_blocks_scale_in = scale_out_blocks_scale_in

    def base(self, policy: Policy, now_s: float, tasks: int) -> int:
        """The capacity that a scale-out of the policy counts from."""
        running = self._running(policy, now_s)
        return tasks if running is None else min(running.before, tasks)

    def allows_out(self, policy: Policy, now_s: float, asked: int) -> bool:
        """Whether the policy may grow the capacity to so many."""
        running = self._running(policy, now_s)
        return running is None or asked > running.reached

    def allows_in(self, now_s: float) -> bool:
        """Whether any policy may shrink the capacity."""
        warming = any(now_s < running.until_s for running in self._out.values())
        if self._scale_out_blocks_scale_in and warming:
            return False
        return self._in_until_s is None or now_s >= self._in_until_s

    def scaled_out(self, policy: Policy, now_s: float, before: int, after: int) -> None:
        """Note a scale-out; the cooldown of a scale-in ends with it."""
        base = self.base(policy, now_s, before)
        self._out[policy.name] = _ScaleOut(now_s + policy.out_cooldown_s, base, after)
        self._in_until_s = None

    def scaled_in(self, policy: Policy, now_s: float) -> None:
        """Note a scale-in."""
        self._in_until_s = now_s + policy.in_cooldown_s

    def _running(self, policy: Policy, now_s: float) -> _ScaleOut | None:
        running = self._out.get(policy.name)
        return running if running is not None and now_s < running.until_s else None
