"""Defines the scenario of a history: healthy groups with daily traffic, and planted incidents.

A simulated second of `support.burrow.fake.simulated_kafka` is a minute here: rates are per minute, phases are minutes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from karrot.demo.simulated_burrow import GROUP_NAMES
from support.burrow.fake.simulated_kafka import Behaviour, ConsumerGroup, Phase, SimulatedTopic

CLUSTERS: Final = ("prod-eu", "prod-us")
DAY: Final = 1440
"""Minutes."""

MINUTE_SPEED: Final = 1 / 60
"""With this speed of a fake Burrow, a simulated second takes a minute."""

_FOREVER = 1_000_000
_TURN = 2 * math.pi / DAY
_PEAK = 14.5 * 60
_HEIGHT = 0.35
_GROWTH = 0.15
_FULL = 1.9


class Planted(NamedTuple):
    """A planted problem of a group, with its first and last minute. Burrow reports it some minutes later."""

    cause: str
    cluster: str
    consumer: str
    from_minute: float
    to_minute: float


class _Row(NamedTuple):
    """A row of the plan: cluster, group, day, time and minutes of a planted problem."""

    cluster: int
    group: int
    cause: str
    day: int
    time: str
    minutes: int


_PLAN = (
    _Row(0, 0, "a consumer stalls", 0, "09:12", 95),
    _Row(0, 1, "too slow for its topic", 0, "13:40", 130),
    _Row(0, 2, "stopped", 0, "02:30", 50),
    _Row(0, 3, "a hot partition", 0, "15:05", 100),
    _Row(0, 4, "too slow for its topic", 0, "22:20", 290),
    _Row(1, 0, "rewound", 0, "17:05", 120),
    _Row(1, 1, "stalled and deleted", 0, "06:00", 90),
    _Row(1, 2, "a nightly batch", 0, "01:00", 40),
    _Row(1, 4, "a consumer stalls", 0, "10:02", 180),
    _Row(0, 0, "a consumer stalls", 3, "11:30", 45),
    _Row(0, 3, "a hot partition", 2, "15:05", 110),
    _Row(0, 3, "a hot partition", 4, "15:05", 120),
    _Row(0, 3, "a hot partition", 6, "15:05", 140),
    _Row(0, 6, "stopped", 5, "03:15", 420),
    _Row(0, 7, "too slow for its topic", 1, "08:30", 240),
    _Row(0, 9, "rewound", 4, "10:45", 180),
    _Row(1, 2, "a nightly batch", 1, "01:00", 40),
    _Row(1, 2, "a nightly batch", 2, "01:00", 40),
    _Row(1, 2, "a nightly batch", 3, "01:00", 40),
    _Row(1, 2, "a nightly batch", 4, "01:00", 40),
    _Row(1, 2, "a nightly batch", 5, "01:00", 40),
    _Row(1, 2, "a nightly batch", 6, "01:00", 40),
    _Row(1, 3, "out of capacity", 4, "09:00", 660),
    _Row(1, 3, "out of capacity", 5, "09:00", 660),
    _Row(1, 3, "out of capacity", 6, "09:00", 660),
    _Row(1, 6, "a consumer stalls", 6, "21:00", 200),
    _Row(1, 8, "stopped", 2, "19:20", 75),
)
"""The problem in the second to last row lasts beyond the week, so its incident is open at the end."""

_PHASES: Mapping[str, Callable[[int], tuple[Phase, ...]]] = {
    "a consumer stalls": lambda minutes: (Phase(minutes, pace=0),),
    "too slow for its topic": lambda minutes: (Phase(minutes, pace=0.5), Phase(minutes, pace=2.2)),
    "stopped": lambda minutes: (Phase(minutes, commits=False),),
    "a hot partition": lambda minutes: (Phase(minutes, pace=0.6), Phase(minutes, pace=2.2)),
    "rewound": lambda minutes: (Phase(minutes, pace=2.2, goes_back=minutes),),
    "stalled and deleted": lambda minutes: (Phase(minutes, pace=0), Phase(4 * minutes, exists=False)),
}
"""The effect of each cause on a group's phases. All other causes change only the traffic."""

_AFFLICTS = {"a consumer stalls": 0.3, "a hot partition": 0.0}
_HOT = 8.0


@dataclass(frozen=True, slots=True)
class _Daily(SimulatedTopic):
    """Traffic with a peak in the early afternoon. It can grow from day to day, and have a batch at one o'clock."""

    growth: float = 0.0
    batch: float = 0.0

    def ends(self, at: float) -> list[float]:
        wave = _HEIGHT / _TURN * math.sin((at - _PEAK) * _TURN)
        days, minute = divmod(at - 60, DAY)
        batches = self.batch * (days * 40 + min(minute, 40))
        minutes = at + wave + self.growth * at * abs(at) / (2 * DAY) + batches
        return [start + rate * minutes for start, rate in zip(self.starts, self.rates, strict=True)]


def planted(groups: int, days: int) -> list[Planted]:
    """Return the planted problems for these numbers of days and of groups per cluster."""
    rows = (row for row in _PLAN if row.group < groups and row.day < days)
    return [
        Planted(row.cause, CLUSTERS[row.cluster], _names(row.group)[0], _begin(row), _begin(row) + row.minutes)
        for row in rows
    ]


def consumer_groups(cluster: str, groups: int, days: int, seed: int) -> list[ConsumerGroup]:
    """Return the groups of a cluster, each with its own topic."""
    number = CLUSTERS.index(cluster)
    return [_group(cluster, index, _rows(number, index, days), seed) for index in range(groups)]


def _rows(cluster: int, group: int, days: int) -> list[_Row]:
    mine = [row for row in _PLAN if (row.cluster, row.group) == (cluster, group) and row.day < days]
    return sorted(mine, key=_begin)


def _begin(row: _Row) -> float:
    hours, minutes = row.time.split(":")
    return row.day * DAY + int(hours) * 60 + int(minutes)


def _names(index: int) -> tuple[str, str]:
    """Return the names of a group and its topic. Groups do not share a topic: their simulated logs would differ."""
    group, topic = GROUP_NAMES[index % len(GROUP_NAMES)]
    copy = f"-{index // len(GROUP_NAMES) + 1}" if index >= len(GROUP_NAMES) else ""
    return group + copy, topic + copy


def _group(cluster: str, index: int, rows: Sequence[_Row], seed: int) -> ConsumerGroup:
    random = Random(f"{seed}/{cluster}/{index}")  # noqa: S311 (a simulation)
    causes = {row.cause for row in rows}
    topic = _topic(index, causes, random)
    partitions = len(topic.rates)
    share = max((_AFFLICTS.get(cause, 1.0) for cause in causes), default=1.0)
    afflicted = range(max(1, round(share * partitions)))
    return ConsumerGroup(
        _names(index)[0],
        [topic],
        Behaviour(tuple(_phases(rows, causes)), starts=(0, 0)),
        random,
        commit_every=1.0,
        members=min(3, partitions),
        afflicted=frozenset((topic.name, partition) for partition in afflicted),
        tempo=(1, 1),
    )


def _topic(index: int, causes: set[str], random: Random) -> _Daily:
    usual = math.exp(random.uniform(math.log(60), math.log(9_000)))
    rates = [usual * random.uniform(0.9, 1.1) for _ in range(random.choice((2, 3, 3, 4)))]
    if "a hot partition" in causes:
        rates[0] *= _HOT
    starts = [int(rate * random.uniform(1, 30) * DAY) for rate in rates]
    growth = _GROWTH if _is_full(causes) else 0.0
    return _Daily(_names(index)[1], rates, starts, growth=growth, batch=5.0 if "a nightly batch" in causes else 0.0)


def _is_full(causes: set[str]) -> bool:
    return "out of capacity" in causes


def _phases(rows: Sequence[_Row], causes: set[str]) -> Iterator[Phase]:
    """Yield the phases from one problem to the next, each with its recovery."""
    pace = _FULL if causes & {"out of capacity", "a nightly batch"} else 3.0
    at = 0.0
    for row in rows:
        if row.cause in _PHASES:
            trouble = _PHASES[row.cause](row.minutes)
            yield Phase(_begin(row) - at, pace=pace)
            yield from trouble
            at = _begin(row) + sum(phase.seconds for phase in trouble)
    yield Phase(_FOREVER, pace=pace)
