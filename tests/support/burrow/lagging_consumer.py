"""Simulates a consumer that lags, and compares the signals from Burrow's verdicts with the true values."""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from karrot.burrow.rules import TrackedPartition, Window, evaluate_group
from karrot.signals import Signals, signals_of

EPOCH_MS = 1_800_000_000_000
FETCH_DELAY = 0.1
EVALUATION_INTERVAL = 30.0
INTERVALS = 10
WORTH_MEASURING = 20.0
"""Lag in seconds below which an error comes from one offset refresh and not from the method."""


class SignalReading(NamedTuple):
    """The signals of one evaluation and their true values."""

    signals: Signals
    lag_seconds: float
    produce_rate: float
    consume_rate: float
    catch_up_seconds: float | None


@dataclass(frozen=True)
class LaggingConsumer:
    """A partition written at random moments, and a consumer at ``share`` of that rate, ``backlog`` seconds behind.

    The consumer commits every ``commit_seconds``, plus or minus a tenth. Burrow reads the log end every
    ``refresh_seconds``, and stores the second in which it read a commit.
    """

    produce_rate: float
    share: float
    commit_seconds: float
    seed: int
    backlog: float = 60.0
    refresh_seconds: float = 10.0
    seconds: float = 1500.0

    def readings(self) -> Iterator[SignalReading]:
        rng = random.Random(self.seed)
        written = _moments(rng, self.produce_rate, self.seconds)
        commits = _commits(rng, self.backlog, self.seconds, self.commit_seconds)
        refresh_at = rng.random() * self.refresh_seconds

        def known_end(at: float) -> int:
            return bisect_right(written, at - (at - refresh_at) % self.refresh_seconds)

        def position(at: float) -> int:
            return min(bisect_right(written, at), int(self.produce_rate * self.share * (at - self.backlog)))

        at = self.backlog + INTERVALS * self.commit_seconds + rng.random() * EVALUATION_INTERVAL
        while at < self.seconds:
            seen = [commit for commit in commits if commit + FETCH_DELAY <= at][-INTERVALS:]
            yield self._reading(at, position(seen[-1]), written, self._signals(at, seen, position, known_end))
            at += EVALUATION_INTERVAL + rng.random()

    def _signals(
        self, at: float, seen: Sequence[float], position: Callable[[float], int], known_end: Callable[[float], int]
    ) -> Signals:
        window = Window(INTERVALS)
        for order, commit in enumerate(seen):
            window.add(
                position(commit),
                order=order,
                timestamp_ms=EPOCH_MS + int(commit * 1000),
                broker_offset=known_end(commit + FETCH_DELAY),
                observed_at_ms=EPOCH_MS + int(commit + FETCH_DELAY) * 1000,
            )
        tracked = TrackedPartition("orders", 0, window.slots, (known_end(at),))
        return signals_of(evaluate_group("prod", "orders-svc", [tracked], EPOCH_MS + int(at * 1000)))

    def _reading(self, at: float, committed: int, written: Sequence[float], signals: Signals) -> SignalReading:
        waiting = bisect_right(written, at) - committed
        consume_rate = self.produce_rate * self.share
        return SignalReading(
            signals=signals,
            lag_seconds=at - written[committed] if waiting else 0.0,
            produce_rate=self.produce_rate,
            consume_rate=consume_rate,
            catch_up_seconds=waiting / (consume_rate - self.produce_rate) if self.share > 1 else None,
        )


class SignalErrors(NamedTuple):
    """Mean errors relative to the true values, and the share of evaluations with a lag in seconds."""

    produce_rate: float
    consume_rate: float
    lag_seconds: float
    known: float


def mean_signal_errors(produce_rate: float, commit_seconds: float, *, seeds: int = 8) -> SignalErrors:
    """Return the errors over consumers that fall behind, slowly and fast, and one that catches up."""
    readings = [
        reading
        for seed in range(seeds)
        for share, backlog in ((0.5, 60.0), (0.8, 60.0), (0.95, 100.0), (1.5, 400.0))
        for reading in LaggingConsumer(produce_rate, share, commit_seconds, seed, backlog).readings()
        if reading.lag_seconds >= WORTH_MEASURING
    ]
    return SignalErrors(
        produce_rate=_mean((each.signals.produce_rate, each.produce_rate) for each in readings),
        consume_rate=_mean((each.signals.consume_rate, each.consume_rate) for each in readings),
        lag_seconds=_mean((each.signals.lag_seconds, each.lag_seconds) for each in readings),
        known=fmean(each.signals.lag_seconds is not None for each in readings),
    )


def _mean(pairs: Iterator[tuple[float | None, float]]) -> float:
    return fmean(abs(estimate - truth) / truth for estimate, truth in pairs if estimate is not None)


def _moments(rng: random.Random, rate: float, until: float) -> list[float]:
    moments, at = [], 0.0
    while at < until:
        at += rng.expovariate(rate)
        moments.append(at)
    return moments


def _commits(rng: random.Random, since: float, until: float, every: float) -> list[float]:
    commits, at = [], since + rng.random() * every
    while at < until:
        commits.append(at)
        at += every * (0.9 + 0.2 * rng.random())
    return commits
