"""Simulates a service that scales on lag, in a closed loop: lag, Burrow, Karrot, CloudWatch, alarms, tasks, lag.

Burrow is the simulated one (its storage, rules and notifier), Karrot its real intake, log, feed and reporter with the
real AWS client, CloudWatch the strict fake over HTTP, and alarms and policies are those of a rendered recipe.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, Self

import pytest

from karrot import telemetry
from karrot.burrow.notification_rules import NotifierSettings
from karrot.delivery import Feed
from karrot.event import Status
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import Intake
from karrot.reporters.cloudwatch.boto_client import PutMetricData, open_client
from karrot.reporters.cloudwatch.reporter import CloudWatchReporter
from karrot.reporters.cloudwatch.sender import Sender
from karrot.settings.options import CloudWatch as Options
from support.autoscaling.alarm_model import AlarmState
from support.autoscaling.closed_loop_recipes import CLUSTER, GROUP, Recipe
from support.autoscaling.fleet import Consumers, Fleet, Signal, signal_of
from support.autoscaling.lag_stack import alarm_states
from support.autoscaling.metric_math_evaluator import Gaps
from support.autoscaling.metric_statistics import MetricIdentity, RecordedMetrics
from support.autoscaling.scaled_consumer_group import PARTITIONS, RATE_PER_TASK, ScaledGroup, VariableRateTopic
from support.autoscaling.template_to_stack import parse_stack
from support.burrow.fake.fake_burrow import BurrowSettings, FakeBurrow, Post
from support.manual_clock import ManualClock
from support.reporters.cloudwatch_reporter_rig import point_aws_at
from support.reporters.reporter_context import make_context
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

NAME = "cloudwatch"
_CONSUMERS = Consumers(RATE_PER_TASK, start_s=60, partitions=PARTITIONS)
_AWS_DELAY_S = 60
_ALARMS_LOOK_MS = 10_000
_TICK_MS = 2_000


class LoopCloudWatch:
    """The fake CloudWatch on a clock that can be replaced, with one boto3 client for all calls.

    Use it as a context manager. The client is made once: that takes longer than an hour of the loop.
    """

    def __init__(self) -> None:
        self._clock = ManualClock()
        self.fake = ScriptedCloudWatch(clock_ms=self._now_ms)

    def __enter__(self) -> Self:
        self.fake.start()
        with pytest.MonkeyPatch.context() as environment:
            point_aws_at(self.fake, environment)
            self._client = open_client(Options(), os.environ)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self.fake.close()

    def reset(self, clock: ManualClock) -> None:
        """Clear all points and faults, and use this clock."""
        self._clock = clock
        self.fake.clear()
        self.fake.forget()

    def open(self) -> PutMetricData:
        """Return the client that the sender opens."""
        return _Kept(self._client)

    def _now_ms(self) -> int:
        return self._clock.wall_ms()


class _Kept:
    """A client that stays open when its users close it."""

    def __init__(self, client: PutMetricData) -> None:
        self._client = client

    def put_metric_data(self, **kwargs: Any) -> Any:
        return self._client.put_metric_data(**kwargs)

    def close(self) -> None:
        """Keep the client open."""


class LoopKarrot:
    """Karrot's path from Burrow's request to CloudWatch; only the log survives a kill."""

    def __init__(self, aws: LoopCloudWatch, clock: ManualClock, settings: Mapping[str, str]) -> None:
        self._aws, self._clock, self._settings = aws, clock, dict(settings)
        self.log = MemoryEventLog(clock)
        self._feed: Feed | None = None
        self.start()

    def start(self) -> None:
        context = make_context(NAME, self._settings, log=self.log, clock=self._clock)
        options = context.options
        sender = Sender(
            self._aws.open,
            options.namespace,
            count=partial(context.count, telemetry.REPORTER_CLOUDWATCH_REQUESTS.name, 1, reporter=NAME),
            pause=lambda seconds: self._clock.advance(round(seconds * 1000)),
            monotonic=lambda: self._clock.boot_ms() / 1000,
        )
        build = partial(CloudWatchReporter, options, sender, context, Random(1))
        self._feed = Feed(NAME, self.log, self._clock, Random(1), build)
        self._intake = Intake(self.log, self._clock)

    def kill(self) -> None:
        """Stop like ``kill -9``: nothing is sent any more, and Burrow's requests fail."""
        self._feed = None

    def receive(self, body: bytes) -> None:
        if self._feed is not None:
            self._intake.begin(body).wait()

    def work(self) -> None:
        while self._feed is not None and self._feed.step() == 0:
            pass

    def dropped(self) -> dict[str, float]:
        """Return the number of values that were not sent, by reason."""
        name = telemetry.REPORTER_DROPPED.name
        return {dict(each.labels)["reason"]: each.value for each in self.log.counters() if each.name == name}


class _AwsMetrics:
    """AWS's own metrics of the tasks, published once per minute and a minute late."""

    def __init__(self, metrics: Iterable[MetricIdentity], *, tells_zero: bool) -> None:
        self._signals = {metric: signal for metric in metrics if (signal := signal_of(metric)) and signal.of_aws}
        self._under_way: deque[tuple[int, int]] = deque()
        self._tells_zero = tells_zero

    def carry(self, at_s: int, running: int, arrived: RecordedMetrics) -> None:
        self._under_way.append((at_s, running))
        while self._under_way[0][0] <= at_s - _AWS_DELAY_S:
            told_s, told = self._under_way.popleft()
            for metric, signal in self._signals.items():
                for value in self._values(signal, told):
                    arrived.put(metric, told_s, value)

    def _values(self, signal: Signal, running: int) -> list[float]:
        if signal is Signal.RUNNING_EACH:
            return [40.0] * running
        return [float(running)] if running or self._tells_zero else []


class Burrow(Protocol):
    """The interface of Burrow in the loop; ``None`` in its place is a dead Burrow."""

    def due(self, now_ms: int) -> list[Post]:
        """Return the posts since the last call."""


class LoopState(NamedTuple):
    """The state at one evaluation of the alarms; ``at_s`` counts from the loop's start."""

    at_s: float
    desired: int
    running: int
    lag: float


class ClosedLoop:
    """A closed loop: `feed` messages and let time `run`; ``history`` has a state for every 10 seconds.

    ``fired`` has the alarms that were in the state ALARM.

    ``rate`` is the write rate before the start in messages per second, and ``tasks`` the running tasks. ``template``
    replaces the rendered recipe. ``tells_zero`` is whether AWS publishes a count of zero running tasks.
    """

    def __init__(
        self,
        recipe: Recipe,
        aws: LoopCloudWatch,
        *,
        tasks: int | None = None,
        rate: float = 0.0,
        settings: Mapping[str, str] | None = None,
        template: Mapping[str, Any] | None = None,
        gaps: Gaps = Gaps.ZERO,
        tells_zero: bool = True,
    ) -> None:
        self.clock = ManualClock()
        self.aws = aws
        aws.reset(self.clock)
        self._began_ms = self.clock.wall
        limits = recipe.least, recipe.most
        self.stack = parse_stack(template or recipe.template, limits=limits, gaps=gaps, activity_s=_CONSUMERS.start_s)
        self.fleet = Fleet(_CONSUMERS, recipe.least if tasks is None else tasks)
        self.topic = VariableRateTopic("orders.v1", rate)
        self._group = ScaledGroup(GROUP, self.topic, self.fleet)
        self.burrow: Burrow | None = self._burrow(recipe.reports_every_s)
        self.karrot = LoopKarrot(aws, self.clock, {**recipe.karrot, **(settings or {})})
        self._arrived = RecordedMetrics()
        self._taken = 0
        self._told_by_aws = _AwsMetrics(self.stack.metrics, tells_zero=tells_zero)
        self.history: list[LoopState] = []
        self.fired: set[str] = set()

    @property
    def now_s(self) -> float:
        """Return the seconds since the start."""
        return (self.clock.wall - self._began_ms) / 1000

    @property
    def tasks(self) -> int:
        return self.fleet.desired

    @property
    def lag(self) -> float:
        return self._group.lag(self.now_s)

    def feed(self, rate: float) -> None:
        """Write this number of messages per second from now on."""
        self.topic.feed(self.now_s, rate)

    def stick(self, partition: int) -> None:
        """Read no further message of this partition."""
        self._group.stuck.add(partition)

    def kill_consumers(self) -> None:
        """Let the tasks run on without reading or committing."""
        self._group.is_dead = True

    def run(self, minutes: float) -> "ClosedLoop":
        """Let time pass; the number of tasks never leaves its limits."""
        until = self.clock.wall + round(minutes * 60_000)
        while self.clock.wall < until:
            self.clock.advance(_TICK_MS)
            self._tick()
        return self

    def run_until(self, condition: Callable[[], bool], *, within_minutes: float) -> None:
        """Let time pass until the condition holds; fail after this number of minutes."""
        deadline = self.clock.wall + round(within_minutes * 60_000)
        while not condition():
            assert self.clock.wall < deadline, f"not within {within_minutes} minutes: {self.history[-60::6]}"
            self.run(1 / 6)

    def forget(self) -> None:
        """Clear the fake's points, so that the loop does not read them again."""
        self._taken = 0

    def changes(self, since_s: float = 0) -> list[tuple[int, int]]:
        """Return the changes by policies from then on: tasks before and after."""
        return [
            (each.before, each.after)
            for each in self.stack.activities
            if each.at_s * 1000 >= self._began_ms + since_s * 1000
        ]

    def state(self, alarm: str) -> AlarmState:
        return alarm_states(self.stack)[alarm]

    def _tick(self) -> None:
        for post in self.burrow.due(self.clock.wall) if self.burrow else ():
            self.karrot.receive(post.body)
        self.karrot.work()
        if self.clock.wall % _ALARMS_LOOK_MS == 0:
            self._look()

    def _look(self) -> None:
        now_s = self.clock.wall // 1000
        if now_s % 60 == 0:
            self._told_by_aws.carry(now_s, self.fleet.running, self._arrived)
        self._take_what_was_published()
        desired = self.stack.tick(now_s, self._arrived, self.fleet.desired)
        assert self.stack.minimum <= desired <= self.stack.maximum
        self.fleet.scale(desired, self.now_s)
        self.history.append(LoopState(self.now_s, desired, self.fleet.running, self.lag))
        self.fired |= {name for name, state in alarm_states(self.stack).items() if state is AlarmState.ALARM}

    def _take_what_was_published(self) -> None:
        published = self.aws.fake.accepted[self._taken :]
        self._taken += len(published)
        for datum in published:
            for point in datum.points():
                self._arrived.put(
                    MetricIdentity.of(*datum.id), point.timestamp_ms / 1000, point.value, datum.resolution
                )

    def _burrow(self, every_s: int) -> FakeBurrow:
        """Return a Burrow with the settings of `karrot burrow-config`."""
        notifier = NotifierSettings(Status.OK, every_s, send_interval=every_s * 2 / 3, send_close=True)
        settings = BurrowSettings(notifier, offset_refresh=10)
        return FakeBurrow({CLUSTER: [self._group]}, Random(1), start_ms=self._began_ms, settings=settings)
