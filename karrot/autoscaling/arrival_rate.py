"""Computes the messages per second that arrived, from a lag that was recorded.

Between two samples the lag changes by what arrived less what was consumed. What was consumed is not in the recording:
this module assumes that every task consumes at a known rate while there is lag. Three consequences:

* Of a group that kept up we know only that no more arrived than its tasks could consume. That maximum is assumed, the
  worst case, unless a ``kept_up_rate`` is given for those times.
* A lag that fell faster than the tasks could consume contradicts the rate: it is counted, never hidden.
* Between two samples the arrival rate is constant, however far apart they are.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_NOISE_SECONDS = 10


class LagSample(NamedTuple):
    """The lag at a time (epoch seconds), and where it is known what arrived per second until the next sample."""

    at_s: float
    lag: float
    arrival_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The recording and what arrived during it: ``rates[i]`` messages a second from sample i to the next."""

    samples: tuple[LagSample, ...]
    rates: tuple[float, ...]
    contradictions: int

    @property
    def start_s(self) -> float:
        """When the recording begins."""
        return self.samples[0].at_s

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.samples[-1].at_s

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two samples."""
        return max(later.at_s - sooner.at_s for sooner, later in pairwise(self.samples))

    @property
    def peak(self) -> LagSample:
        """The sample with the largest lag."""
        return max(self.samples, key=lambda sample: sample.lag)

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
    """The load behind a recorded lag, given how many tasks consumed at the time and how fast one is.

    Samples may come in any order; of two at one time the last counts. A group kept up between two samples if its lag
    was at both below what its tasks take in 10 seconds, about Burrow's view of the broker. Raises `ValueError` for less
    than two samples.
    """
    ordered = tuple(sorted({sample.at_s: sample for sample in samples}.values()))
    if len(ordered) < 2:  # noqa: PLR2004 (two ends of one interval)
        raise ValueError("a recording takes at least two samples at different times")
    capacity = tasks * rate_per_task
    raw = [_rate(sooner, later, capacity, kept_up_rate) for sooner, later in pairwise(ordered)]
    return Load(ordered, tuple(max(0.0, rate) for rate in raw), sum(rate < 0 for rate in raw))


def _rate(sooner: LagSample, later: LagSample, capacity: float, kept_up_rate: float | None) -> float:
    if sooner.arrival_rate is not None:
        return sooner.arrival_rate
    if kept_up_rate is not None and max(sooner.lag, later.lag) <= capacity * _NOISE_SECONDS:
        return kept_up_rate
    return capacity + (later.lag - sooner.lag) / (later.at_s - sooner.at_s)
