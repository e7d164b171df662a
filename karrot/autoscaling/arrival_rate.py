"""Computes the arrival rate in messages per second from a recorded lag.

Between two samples, the lag changes by the arrived messages minus the consumed messages. The recording does not have
the consumed messages, so this module assumes that every task consumes at a known rate while there is lag. This has
three consequences:

* For a group that kept up, the recording shows only that its tasks could consume all arrivals. The module assumes the
  worst case: the most that the tasks could consume. A given ``kept_up_rate`` replaces this assumption.
* A lag that fell faster than the tasks could consume contradicts the assumed rate. The module counts these intervals.
* Between two samples, the arrival rate is constant, even if the samples are far apart.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

_NOISE_SECONDS = 10
_SILENT_INTERVALS = 3
_LEAST_SILENCE_S = 180


class LagSample(NamedTuple):
    """The lag at a time (epoch seconds), and the arrival rate up to the next sample if it is known."""

    at_s: float
    lag: float
    arrival_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The recording and its arrival rates: ``rates[i]`` messages per second from sample i to the next.

    Samples that are more than ``silence_s`` apart show that Karrot sent nothing between them.
    """

    samples: tuple[LagSample, ...]
    rates: tuple[float, ...]
    contradictions: int
    silence_s: float

    @property
    def start_s(self) -> float:
        """The start time of the recording."""
        return self.samples[0].at_s

    @property
    def end_s(self) -> float:
        """The end time of the recording."""
        return self.samples[-1].at_s

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two samples."""
        return max(later.at_s - sooner.at_s for sooner, later in pairwise(self.samples))

    @property
    def peak(self) -> LagSample:
        """The sample with the largest lag."""
        return max(self.samples, key=lambda sample: sample.lag)

    def is_silent(self, at_s: float) -> bool:
        """Whether the recording has a silence at this time: a gap of three usual intervals, and of three minutes."""
        after = bisect_right(self.samples, (at_s, float("inf")))
        if after == len(self.samples) or not after or self.samples[after - 1].at_s == at_s:
            return False
        return self.samples[after].at_s - self.samples[after - 1].at_s > self.silence_s

    def arrived(self, start_s: float, end_s: float) -> float:
        """Messages that arrived from ``start_s`` to ``end_s``; none outside the recording."""
        first = max(bisect_right(self.samples, (start_s, float("inf"))) - 1, 0)
        total = 0.0
        for at in range(first, len(self.rates)):
            begin, end = self.samples[at].at_s, self.samples[at + 1].at_s
            if begin >= end_s:
                break
            total += self.rates[at] * max(0.0, min(end, end_s) - max(begin, start_s))
        return total


def loaded(
    samples: Iterable[LagSample], *, tasks: int, rate_per_task: float, kept_up_rate: float | None = None
) -> Load:
    """Compute the load from a recorded lag, the number of tasks during the recording, and the rate of one task.

    Samples can come in any order. Of two samples with the same time, the last one counts. A group kept up between two
    samples if both lags were smaller than the messages that its tasks consume in 10 seconds. Burrow's log end offsets
    are about 10 seconds old. Raises `ValueError` for fewer than two samples.
    """
    ordered = tuple(sorted({sample.at_s: sample for sample in samples}.values()))
    if len(ordered) < 2:  # noqa: PLR2004 (two ends of one interval)
        raise ValueError("a recording takes at least two samples at different times")
    capacity = tasks * rate_per_task
    raw = [_rate(sooner, later, capacity, kept_up_rate) for sooner, later in pairwise(ordered)]
    usual_s = median(later.at_s - sooner.at_s for sooner, later in pairwise(ordered))
    return Load(
        ordered,
        tuple(max(0.0, rate) for rate in raw),
        contradictions=sum(rate < 0 for rate in raw),
        silence_s=max(_LEAST_SILENCE_S, _SILENT_INTERVALS * usual_s),
    )


def _rate(sooner: LagSample, later: LagSample, capacity: float, kept_up_rate: float | None) -> float:
    if sooner.arrival_rate is not None:
        return sooner.arrival_rate
    if kept_up_rate is not None and max(sooner.lag, later.lag) <= capacity * _NOISE_SECONDS:
        return kept_up_rate
    return capacity + (later.lag - sooner.lag) / (later.at_s - sooner.at_s)
