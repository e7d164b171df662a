"""When did a log end where? The log-end samples of each partition, and the age of a message from them."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from support.pipeline.expected_tables.archive_lines import Event
from support.pipeline.expected_tables.calendar_ms import MINUTE_MS, day_of

_REFRESH_MS = 10_000
"""Burrow reads a log end this often by default, so its log ends can be this old."""


class Log(NamedTuple):
    """A partition of a topic, whatever groups read it."""

    cluster: str
    topic: str
    partition: int


class Sample(NamedTuple):
    """A log end, the time at which it was seen, and the log start at that time, if it is known."""

    at_ms: int
    offset: int
    start: int | None = None


class Age(NamedTuple):
    """An age and how it is known: ``exact``, ``extrapolated`` or ``at_least``."""

    seconds: float
    kind: str


@dataclass(frozen=True, slots=True)
class LogEndRow:
    """A row of the table ``ends``."""

    log: Log
    sample: Sample
    start_offset: int | None = None


class LogEnds:
    """All log-end samples of all days.

    They come from polls or, if the partition was not polled on that day, from the partitions that verdicts list and,
    ``with_worst``, from the max-lag partition of each verdict. Of several log ends at one time, the highest counts.
    """

    def __init__(self, events: Iterable[Event], ends: Iterable[LogEndRow], *, with_worst: bool) -> None:
        self._polled = defaultdict[tuple[int, Log], dict[int, Sample]](dict)
        self._told = defaultdict[tuple[int, Log], dict[int, Sample]](dict)
        self._found: dict[tuple[Log, tuple[int, ...]], list[Sample]] = {}
        for row in ends:
            _add(self._polled[day_of(row.sample.at_ms), row.log], row.sample._replace(start=row.start_offset))
        for event in events:
            for one in (*event.partitions, *((event.worst,) if with_worst and event.worst else ())):
                if one.log_end is not None and event.observed_ms is not None:
                    log = Log(event.cluster, one.topic, one.partition)
                    _add(self._told[day_of(event.received_ms), log], Sample(event.observed_ms, one.log_end))

    def places(self) -> set[tuple[int, Log]]:
        """Return each day and partition with a sample."""
        return self._polled.keys() | self._told.keys()

    def of_days(self, log: Log, *days: int) -> list[Sample]:
        """Return the samples of a partition on some days, ordered by time.

        A sample of a verdict is left out if it is below a sample of the minute before it.
        """
        if (log, days) not in self._found:
            polled, told = dict[int, Sample](), dict[int, Sample]()
            for day in days:
                if (day, log) in self._polled:
                    polled |= self._polled[day, log]
                else:
                    told |= self._told.get((day, log), {})
            self._found[log, days] = _not_overtaken(polled, told)
        return self._found[log, days]


def _add(samples: dict[int, Sample], sample: Sample) -> None:
    before = samples.get(sample.at_ms, sample)
    starts = [each.start for each in (before, sample) if each.start is not None]
    samples[sample.at_ms] = Sample(sample.at_ms, max(before.offset, sample.offset), max(starts, default=None))


def _not_overtaken(polled: Mapping[int, Sample], told: Mapping[int, Sample]) -> list[Sample]:
    samples = sorted(({**told, **polled}).values())
    kept, first = [], 0
    for number, sample in enumerate(samples):
        while samples[first].at_ms < sample.at_ms - MINUTE_MS:
            first += 1
        if sample.at_ms in polled or all(other.offset <= sample.offset for other in samples[first:number]):
            kept.append(sample)
    return kept


def lives(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Split samples where the log end went back, because the topic was created again there."""
    found: list[list[Sample]] = []
    for sample in samples:
        if not found or sample.offset < found[-1][-1].offset:
            found.append([])
        found[-1].append(sample)
    return found


def life_at(samples: Sequence[Sample], at_ms: int) -> list[Sample]:
    """Return the samples of the log that existed at a time: those of the life of the newest sample up to that time."""
    begun = [life for life in lives(samples) if life[0].at_ms <= at_ms]
    return begun[-1] if begun else []


def refresh_of(source: str) -> int:
    """Return how old the log ends of a source can be. Watch asks the brokers itself."""
    return 0 if source == "kafka" else _REFRESH_MS


def age_at(
    samples: Sequence[Sample], offset: int, now_ms: int, refresh_ms: int, longest_ms: int, *, until_ms: int
) -> Age | None:
    """Return how long ago the log ended at an offset, by the samples of one life of the log.

    Only samples until ``until_ms`` can extrapolate it.
    """
    if not samples:
        return None
    times, offsets = [sample.at_ms for sample in samples], [sample.offset for sample in samples]
    below = bisect_right(offsets, offset) - 1
    if below < 0:
        missing = offsets[0] - offset
        above = bisect_left(offsets, offsets[0] + missing)
        if above == len(offsets) or times[above] > until_ms:
            return Age(max(0, now_ms - times[0]) / 1000, "at_least")
        per_message = (times[above] - times[0]) / (offsets[above] - offsets[0])
        reached_ms, kind = times[0] - missing * per_message, "extrapolated"
    elif below == len(offsets) - 1:
        per_message, reached_ms, kind = 0.0, times[below], "exact"
    elif times[below + 1] - times[below] > longest_ms:
        return None
    else:
        since = times[below]
        if below and offsets[below - 1] == offsets[below] and since - times[below - 1] <= refresh_ms:
            since = times[below - 1]
        per_message = (times[below + 1] - since) / (offsets[below + 1] - offsets[below])
        reached_ms, kind = since + (offset - offsets[below]) * per_message, "exact"
    is_a_sample = below >= 0 and offsets[below] == offset
    late_ms = 0.0 if is_a_sample else max(0.0, (refresh_ms - per_message) / 2)
    return Age(max(0.0, now_ms - reached_ms + late_ms) / 1000, kind)
