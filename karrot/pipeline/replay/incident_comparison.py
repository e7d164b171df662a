"""Compares the incidents under several rule sets: how many stand-stills each rule set found, and how soon.

Times are epoch milliseconds, durations are seconds. The functions are pure and work on a few rows per incident.
`sentences` compares each rule set with the first rule set, which is the baseline.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import median
from typing import NamedTuple, TypeVar

from karrot.event import GroupKey, Status
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet
from karrot.text import counted, duration

T = TypeVar("T", "StatusRun", "ReplayedIncident")
_NAMED = 3


class StatusRun(NamedTuple):
    """A time in which a group had one status, or a stand-still: its unread partition had the same committed offset."""

    group: GroupKey
    status: str
    from_ms: int
    to_ms: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class ReplayedIncident:
    """An incident lasts from the first verdict worse than OK until the next OK, or until the group was gone.

    ``is_open``: the end is not known. ``is_flap``: the incident began soon after the previous incident.
    ``stood_still``: a committed offset did not move during the incident.
    """

    group: GroupKey
    from_ms: int
    to_ms: int
    is_open: bool
    worst: str
    is_flap: bool
    stood_still: bool


@dataclass(frozen=True, slots=True)
class RuleSetOutcome:
    """The result of one rule set. ``runs`` are the status runs with WARN or ERR.

    ``delays`` has, for each stand-still, the time in seconds from its beginning to the rule set's first overlapping
    incident, or ``None`` without such an incident. ``shifts`` has the same for each incident of the baseline, negative
    for an earlier incident. ``missed`` are the stand-stills without an incident. ``alone`` counts the rule set's
    incidents during which the baseline had no incident.
    """

    rules: RuleSet
    runs: Sequence[StatusRun]
    incidents: Sequence[ReplayedIncident]
    delays: Sequence[float | None]
    shifts: Sequence[float | None]
    missed: Sequence[StatusRun]
    alone: int

    @property
    def flaps(self) -> int:
        return sum(each.is_flap for each in self.incidents)

    @property
    def minutes_not_ok(self) -> float:
        return sum(each.to_ms - each.from_ms for each in self.incidents) / 60_000

    @property
    def without_standstill(self) -> int:
        """The number of incidents in which no partition stood still."""
        return sum(not each.stood_still for each in self.incidents)

    @property
    def median_delay(self) -> float | None:
        return median(known) if (known := [each for each in self.delays if each is not None]) else None


def compare(
    rule_sets: Sequence[RuleSet], runs: Sequence[Sequence[StatusRun]], stood: Sequence[StatusRun], *, flap_s: int
) -> list[RuleSetOutcome]:
    """Compute the outcome of each rule set from its status runs. The first rule set is the baseline.

    An incident is a flap if the incident begins within ``flap_s`` seconds after the end of the previous incident.
    """
    of_sets = [list(_incidents(each, stood, flap_s)) for each in runs]
    outcomes = []
    for rules, of_set, incidents in zip(rule_sets, runs, of_sets, strict=True):
        # If the incident began before the stand-still, the delay is 0.
        delays = [None if each is None else max(0, each) for each in _delays(stood, incidents)]
        missed = [each for each, delay in zip(stood, delays, strict=True) if delay is None]
        shifts, alone = list(_delays(of_sets[0], incidents)), list(_delays(incidents, of_sets[0])).count(None)
        outcomes.append(RuleSetOutcome(rules, of_set, incidents, delays, shifts, missed, alone))
    return outcomes


def _incidents(runs: Sequence[StatusRun], stood: Sequence[StatusRun], flap_s: int) -> Iterator[ReplayedIncident]:
    by_group = _by_group(stood)
    for group, of_group in groupby(sorted(runs, key=attrgetter("group", "from_ms")), attrgetter("group")):
        ended_ms = None
        for together in _unbroken(list(of_group)):
            from_ms, to_ms, is_open = together[0].from_ms, together[-1].to_ms, together[-1].is_open
            yield ReplayedIncident(
                group,
                from_ms,
                to_ms,
                is_open,
                worst=max((run.status for run in together), key=lambda status: Status[status]),
                is_flap=ended_ms is not None and from_ms - ended_ms <= flap_s * 1000,
                stood_still=any(_overlap(each, from_ms, to_ms) for each in by_group.get(group, ())),
            )
            ended_ms = to_ms


def _unbroken(runs: Sequence[StatusRun]) -> Iterator[Sequence[StatusRun]]:
    """Split the status runs of a group at each gap. In a gap, the group was OK or gone."""
    cuts = [number for number, (one, other) in enumerate(pairwise(runs), 1) if one.to_ms < other.from_ms]
    for begin, end in pairwise([0, *cuts, len(runs)]):
        yield runs[begin:end]


def _delays(
    what: Iterable[StatusRun | ReplayedIncident], incidents: Sequence[ReplayedIncident]
) -> Iterator[float | None]:
    """Yield, for each entry of ``what``, the seconds from its beginning to the first incident that overlaps it."""
    by_group = _by_group(incidents)
    for each in what:
        among = by_group.get(each.group, [])
        hit = next((one for one in among if _overlap(one, each.from_ms, each.to_ms)), None)
        yield None if hit is None else (hit.from_ms - each.from_ms) / 1000


def _overlap(one: StatusRun | ReplayedIncident, from_ms: int, to_ms: int) -> bool:
    return one.from_ms <= to_ms and from_ms <= one.to_ms


def _by_group(things: Iterable[T]) -> dict[GroupKey, list[T]]:
    found: dict[GroupKey, list[T]] = {}
    for each in things:
        found.setdefault(each.group, []).append(each)
    return found


def sentences(outcomes: Sequence[RuleSetOutcome]) -> Iterator[str]:
    """Say what the numbers of each rule set do not show. The first rule set is the baseline."""
    first = outcomes[0]
    for each in outcomes:
        name = each.rules.name
        if each.without_standstill:
            yield f"During {counted(each.without_standstill, 'incident')} of {name}, no partition stood still."
        yield from () if each is first else _against(each, first)
        if each.missed:
            names = ", ".join(map(_named, each.missed[:_NAMED]))
            more = f" and {len(each.missed) - _NAMED:,} more" if len(each.missed) > _NAMED else ""
            yield f"{name} misses {counted(len(each.missed), 'stand-still')}: {names}{more}."
    if not first.delays:
        yield "No partition stood still in this time, so this replay does not show what each set of rules would miss."


def _against(one: RuleSetOutcome, first: RuleSetOutcome) -> Iterator[str]:
    if shifts := sorted(each for each in one.shifts if each is not None):
        middle, total = shifts[len(shifts) // 2], counted(len(first.incidents), "incident")
        half = ", half of them at least" if len(shifts) > 1 else ","
        shift = f"{half} {duration(abs(middle))} {'later' if middle > 0 else 'sooner'}" if middle else ""
        yield f"{one.rules.name} finds {len(shifts):,} of {total} of {first.rules.name}{shift}."
    if one.alone:
        yield f"{one.rules.name} has {counted(one.alone, 'incident')} that {first.rules.name} does not have."


def _named(stall: StatusRun) -> str:
    at = datetime.fromtimestamp(stall.from_ms / 1000, UTC)
    lasted = duration((stall.to_ms - stall.from_ms) / 1000)
    return f"{stall.group.cluster}/{stall.group.consumer} at {at:%m-%d %H:%M} for {lasted}"
