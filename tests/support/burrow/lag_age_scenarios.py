"""Simulates a partition, its consumer, Burrow and Karrot, and compares the lag in seconds with the true age.

Messages are written at random moments. Burrow reads the log end every ten seconds and posts a verdict about every
thirty. Karrot's event log takes each verdict, as in production.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from karrot.burrow.payload import to_wire
from karrot.burrow.rules import TrackedPartition, Window, evaluate_group
from karrot.event import AgeKind, GroupKey, LagEvent
from karrot.eventlog.sqlite.store import MemoryEventLog
from support.burrow.lag_age_yardsticks import LogAnchors, LookupTable, Polled, Yardstick
from support.manual_clock import ManualClock

REFRESH = 10.0
FETCH_DELAY = 0.1
INTERVALS = 10
WARM_UP = 120.0
BINS = ((60.0, 120.0), (120.0, 600.0), (600.0, float("inf")))
"""The true ages, in seconds, over which errors are averaged."""

Rate = Callable[[float], float]


@dataclass(frozen=True)
class Scenario:
    """One situation. Times are seconds since the start, rates are messages per second.

    ``rate`` is the producer's at a time, at most ``peak``. The consumer reads at most ``capacity`` and stands still
    during ``pauses``. At ``resets`` the group goes back to the first message. Karrot gets no verdict during
    ``karrot_down``. Burrow forgets its window at ``burrow_restarts``. A verdict arrives up to ``late`` seconds after it
    was made.
    """

    name: str
    rate: Rate
    peak: float
    capacity: float
    commit_every: float = 5.0
    seconds: float = 3000.0
    pauses: Sequence[tuple[float, float]] = ()
    resets: Sequence[float] = ()
    karrot_down: Sequence[tuple[float, float]] = ()
    burrow_restarts: Sequence[float] = ()
    late: float = 0.0
    verdict_every: float = 30.0


class Reading(NamedTuple):
    """One verdict: the true age, and what Karrot and the yardsticks say at that moment."""

    truth: float
    seconds: float | None
    kind: AgeKind | None
    others: Mapping[str, float | None]


def readings(scenario: Scenario, seed: int) -> Iterator[Reading]:
    """Run a scenario and return a reading for each verdict on a group with lag, after the first two minutes."""
    world = _World(scenario, random.Random(seed))
    clock = ManualClock()
    log = MemoryEventLog(clock)
    start_ms = clock.wall_ms()
    yardsticks: dict[str, Yardstick] = {"kafka-lag-exporter": LookupTable(), "klag": LogAnchors()}
    shown: dict[str, float | None] = dict.fromkeys(yardsticks)
    polls = {name: world.rng.random() * each.every for name, each in yardsticks.items()}
    elapsed = 0.0
    for at in world.verdicts():
        seen = world.window(at)
        _poll(world, yardsticks, polls, shown, at)
        if not seen or any(since <= at < until for since, until in scenario.karrot_down):
            continue
        arrives = at + world.rng.random() * scenario.late
        clock.advance(int((arrives - elapsed) * 1000))
        elapsed = arrives
        event = world.verdict(at, seen, start_ms)._replace(observed_at_ms=clock.wall_ms())
        log.append(event, to_wire(event))
        state = log.group(GroupKey(event.cluster, event.consumer))
        committed = world.position(seen[-1])
        if state is None or at < WARM_UP or committed >= world.end(arrives):
            continue
        signals = state.summary.signals
        truth = arrives - world.written[committed]
        yield Reading(truth, signals.lag_seconds, signals.lag_seconds_kind, dict(shown))


def _poll(
    world: "_World",
    yardsticks: Mapping[str, Yardstick],
    polls: dict[str, float],
    shown: dict[str, float | None],
    until: float,
) -> None:
    for name, each in yardsticks.items():
        while polls[name] <= until:
            at = polls[name]
            commits = world.commits[: bisect_right(world.commits, at)]
            if commits:
                shown[name] = each.poll(Polled(at, world.position(commits[-1]), world.end(at), world.written))
            polls[name] = at + each.every


@dataclass
class _World:
    """The partition, the commits and Burrow's view of them."""

    scenario: Scenario
    rng: random.Random
    written: list[float] = field(init=False)
    commits: list[float] = field(init=False)
    positions: list[int] = field(init=False)
    refresh_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.written = list(_moments(self.rng, self.scenario))
        self.refresh_at = self.rng.random() * REFRESH
        self.commits, self.positions = _commits(self.rng, self.scenario, self.end)

    def end(self, at: float) -> int:
        return bisect_right(self.written, at)

    def known_end(self, at: float) -> int:
        """The log end of Burrow's last request before a time. A restart or failover changes the moments of requests."""
        shift = 3.7 * sum(restart <= at for restart in self.scenario.burrow_restarts)
        return self.end(at - (at - self.refresh_at - shift) % REFRESH)

    def position(self, commit: float) -> int:
        return self.positions[bisect_right(self.commits, commit) - 1]

    def verdicts(self) -> Iterator[float]:
        at = self.rng.random() * self.scenario.verdict_every
        while at < self.scenario.seconds:
            yield at
            at += self.scenario.verdict_every + self.rng.random()

    def window(self, at: float) -> list[float]:
        since = max((each for each in self.scenario.burrow_restarts if each <= at), default=0.0)
        return [each for each in self.commits if since <= each and each + FETCH_DELAY <= at][-INTERVALS:]

    def verdict(self, at: float, seen: Sequence[float], start_ms: int) -> LagEvent:
        window = Window(INTERVALS)
        for order, commit in enumerate(seen):
            window.add(
                self.position(commit),
                order=order,
                timestamp_ms=start_ms + int(commit * 1000),
                broker_offset=self.known_end(commit + FETCH_DELAY),
                observed_at_ms=start_ms + int(commit + FETCH_DELAY) * 1000,
            )
        tracked = TrackedPartition("orders", 0, window.slots, (self.known_end(at),))
        return evaluate_group("prod", "orders-svc", [tracked], start_ms + int(at * 1000))


def _moments(rng: random.Random, scenario: Scenario) -> Iterator[float]:
    at = 0.0
    while at < scenario.seconds:
        at += rng.expovariate(scenario.peak)
        if rng.random() * scenario.peak < scenario.rate(at):
            yield at


def _commits(rng: random.Random, scenario: Scenario, end: Callable[[float], int]) -> tuple[list[float], list[int]]:
    commits, positions = [], []
    before = at = rng.random() * scenario.commit_every
    position, resets = 0, sorted(scenario.resets)
    while at < scenario.seconds:
        if resets and resets[0] <= at:
            position = 0
            resets.pop(0)
        paused = any(since <= at < until for since, until in scenario.pauses)
        position = min(end(at), position + (0 if paused else int(scenario.capacity * (at - before))))
        commits.append(at)
        positions.append(position)
        before = at
        at += scenario.commit_every * (0.9 + 0.2 * rng.random())
    return commits, positions


class BinErrors(NamedTuple):
    """The readings of one scenario and one range of true ages.

    ``error`` is Karrot's mean error relative to the truth, over ages that are not a lower bound. ``goal_share`` is the
    mean error in seconds divided by the goal: the largest of 5 %, half an offset-refresh and the mean gap between
    messages. ``others`` are the mean errors of the yardsticks, over the verdicts for which they show a value.
    """

    readings: int
    error: float | None
    goal_share: float
    known: float
    at_least: float
    above_truth: int
    others: Mapping[str, float | None]


def errors(scenarios: Sequence[Scenario], *, seeds: int) -> list[BinErrors | None]:
    """The errors over the scenarios of one row, for each of `BINS`; ``None`` for a range without a reading."""
    found = [
        (reading, 1 / scenario.peak)
        for scenario in scenarios
        for seed in range(seeds)
        for reading in readings(scenario, seed)
    ]
    return [_bin_errors([each for each in found if low <= each[0].truth < high]) for low, high in BINS]


def _bin_errors(found: Sequence[tuple[Reading, float]]) -> BinErrors | None:
    if not found:
        return None
    known = [(each, gap) for each, gap in found if each.seconds is not None]
    told = [(each, gap) for each, gap in known if each.kind is not AgeKind.AT_LEAST]
    bound = [each for each, _ in known if each.kind is AgeKind.AT_LEAST]
    goal = sum(max(0.05 * each.truth, REFRESH / 2, gap) for each, gap in told)
    return BinErrors(
        readings=len(found),
        error=_mean_error((each.seconds, each.truth) for each, _ in told),
        goal_share=sum(abs((each.seconds or 0.0) - each.truth) for each, _ in told) / goal if goal else 0.0,
        known=len(known) / len(found),
        at_least=len(bound) / len(found),
        above_truth=sum((each.seconds or 0.0) > each.truth + 0.001 for each in bound),
        others={name: _mean_error((each.others[name], each.truth) for each, _ in found) for name in found[0][0].others},
    )


def _mean_error(pairs: Iterator[tuple[float | None, float]]) -> float | None:
    shares = [abs(seconds - truth) / truth for seconds, truth in pairs if seconds is not None]
    return fmean(shares) if shares else None


def _steady(rate: float, commit_every: float) -> list[Scenario]:
    """Consumers that fall behind fast, slowly and very slowly, and one that catches up after a pause."""
    base = Scenario("", lambda _at: rate, rate, rate, commit_every)
    return [
        *(replace(base, capacity=rate * share, pauses=[(60.0, 120.0)]) for share in (0.5, 0.8, 0.95)),
        replace(base, capacity=rate * 1.5, pauses=[(60.0, 500.0)]),
    ]


def _varied(scenarios: Sequence[Scenario], **changes: object) -> list[Scenario]:
    return [replace(each, **changes) for each in scenarios]  # type: ignore[arg-type]


def _burst(at: float) -> float:
    """A batch of five minutes, ten minutes after the start. Before it a message every five seconds, after it none."""
    if at < 600:
        return 0.2
    return 50.0 if at < 900 else 0.0


def _swing(at: float) -> float:
    return 40.0 if int(at // 120) % 2 else 10.0


ROWS: Mapping[str, Sequence[Scenario]] = {
    "0.1 messages/s": _steady(0.1, 5),
    "0.5 messages/s": _steady(0.5, 5),
    "5 messages/s, commits every 0.5 s": _steady(5, 0.5),
    "5 messages/s, commits every 1 s": _steady(5, 1),
    "5 messages/s": _steady(5, 5),
    "5 messages/s, commits every 30 s": _steady(5, 30),
    "50 messages/s": _steady(50, 5),
    "idle producer after a batch": [
        Scenario("", _burst, 50.0, capacity, commit_every)
        for capacity in (5.0, 15.0)
        for commit_every in (1.0, 5.0, 30.0)
    ],
    "a producer that doubles and halves": [
        Scenario("", _swing, 40.0, capacity, pauses=[(60.0, 120.0)]) for capacity in (12.0, 20.0, 24.0)
    ],
    "restart of Karrot": _varied(_steady(5, 5), karrot_down=[(900.0, 1080.0)]),
    "restart of Burrow": _varied(_steady(5, 5), burrow_restarts=[900.0, 1800.0]),
    "failover of Burrow": _varied(_steady(5, 5), burrow_restarts=[900.0], karrot_down=[(900.0, 945.0)]),
    "verdicts up to 5 s late": _varied(_steady(5, 5), late=5.0),
    "Karrot installed during a backlog": _varied(
        [Scenario("", _burst, 50.0, capacity) for capacity in (5.0, 15.0)], karrot_down=[(0.0, 1200.0)]
    ),
    "a reset to the first message": [
        Scenario("", lambda _at: 2.0, 2.0, 4.0, seconds=93_600.0, resets=[86_400.0], verdict_every=60.0)
    ],
}
"""The rows of the table in docs/signals.md: what happens, and the runs over which each row is averaged."""
