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
from karrot.text import counted, duration, plural

T = TypeVar("T", "Stall", "ReplayedIncident")
_NAMED = 3


class RuleSetRun(NamedTuple):
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


class Stall(NamedTuple):
    """A stand-still: a time in which a partition of a group had unread messages but its offset did not move."""

    group: GroupKey
    from_ms: int
    to_ms: int


class Detection(NamedTuple):
    """How soon a rule set found a stand-still or an incident of the baseline.

    ``delay`` is the time in seconds from the beginning of ``what`` to the rule set's first overlapping incident, or
    ``None`` without such an incident. Only if ``what`` is an incident, ``delay`` can be negative.
    """

    what: Stall | ReplayedIncident
    delay: float | None


@dataclass(frozen=True, slots=True)
class RuleSetOutcome:
    """The result of one rule set. ``runs`` are the status runs with WARN or ERR.

    ``found`` has an entry for each stand-still, ``alike`` for each incident of the baseline. ``alone`` counts the rule
    set's incidents during which the baseline had no incident.
    """

    rules: RuleSet
    runs: Sequence[RuleSetRun]
    incidents: Sequence[ReplayedIncident]
    found: Sequence[Detection]
    alike: Sequence[Detection]
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
    def delays(self) -> list[float]:
        return sorted(each.delay for each in self.found if each.delay is not None)

    @property
    def median_delay(self) -> float | None:
        return median(self.delays) if self.delays else None

    @property
    def missed(self) -> list[Stall | ReplayedIncident]:
        return [each.what for each in self.found if each.delay is None]


def compare(
    rule_sets: Sequence[RuleSet], runs: Sequence[Sequence[RuleSetRun]], stood: Sequence[Stall], *, flap_s: int
) -> list[RuleSetOutcome]:
    """Compute the outcome of each rule set from its status runs. The first rule set is the baseline.

    An incident is a flap if the incident begins within ``flap_s`` seconds after the end of the previous incident.
    """
    of_sets = [list(_incidents(each, stood, flap_s)) for each in runs]
    first = of_sets[0]
    return [
        RuleSetOutcome(
            rules,
            of_set,
            incidents,
            found=list(_found(stood, incidents)),
            alike=list(_found(first, incidents)),
            alone=sum(each.delay is None for each in _found(incidents, first)),
        )
        for rules, of_set, incidents in zip(rule_sets, runs, of_sets, strict=True)
    ]


def _incidents(runs: Sequence[RuleSetRun], stood: Sequence[Stall], flap_s: int) -> Iterator[ReplayedIncident]:
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


def _unbroken(runs: Sequence[RuleSetRun]) -> Iterator[Sequence[RuleSetRun]]:
    """Split the status runs of a group at each gap. In a gap, the group was OK or gone."""
    cuts = [number for number, (one, other) in enumerate(pairwise(runs), 1) if one.to_ms < other.from_ms]
    for begin, end in pairwise([0, *cuts, len(runs)]):
        yield runs[begin:end]


def _found(what: Iterable[Stall | ReplayedIncident], incidents: Sequence[ReplayedIncident]) -> Iterator[Detection]:
    """Find the first incident that overlaps each entry of ``what``."""
    by_group = _by_group(incidents)
    for each in what:
        among = by_group.get(each.group, [])
        hit = next((one for one in among if _overlap(one, each.from_ms, each.to_ms)), None)
        delay = None if hit is None else (hit.from_ms - each.from_ms) / 1000
        # If the incident began before the stand-still, the delay is 0.
        yield Detection(each, max(0, delay) if delay is not None and isinstance(each, Stall) else delay)


def _overlap(one: Stall | ReplayedIncident, from_ms: int, to_ms: int) -> bool:
    return one.from_ms <= to_ms and from_ms <= one.to_ms


def _by_group(things: Iterable[T]) -> dict[GroupKey, list[T]]:
    found: dict[GroupKey, list[T]] = {}
    for each in things:
        found.setdefault(each.group, []).append(each)
    return found


def sentences(outcomes: Sequence[RuleSetOutcome]) -> Iterator[str]:
    """Describe each rule set, and then the conclusions. A line has one or two sentences."""
    first, *others = outcomes
    for each in outcomes:
        yield from _in_itself(each)
        yield from () if each is first else _against(each, first)
        yield from _finding(each) if each.found else ()
    if not first.found:
        yield "No partition stood still in this time, so this replay does not show what each set of rules would miss."
        return
    for each in others:
        if len(each.incidents) < len(first.incidents):
            yield _price(each, first)


def _in_itself(one: RuleSetOutcome) -> Iterator[str]:
    many = f"{counted(len(one.incidents), 'incident')} with a total duration of {duration(one.minutes_not_ok * 60)}"
    yield f"{one.rules.name} has {many if one.incidents else 'no incident'}."
    if one.without_standstill:
        yield f"During {counted(one.without_standstill, 'incident')} of {one.rules.name}, no partition stood still."


def _against(one: RuleSetOutcome, first: RuleSetOutcome) -> Iterator[str]:
    if shifts := sorted(each.delay for each in one.alike if each.delay is not None):
        middle, total = shifts[len(shifts) // 2], counted(len(first.incidents), "incident")
        half = ", half of them at least" if len(shifts) > 1 else ","
        shift = f"{half} {duration(abs(middle))} {'later' if middle > 0 else 'sooner'}" if middle else ""
        yield f"{one.rules.name} finds {len(shifts):,} of {total} of {first.rules.name}{shift}."
    if one.alone:
        yield f"{one.rules.name} has {counted(one.alone, 'incident')} that {first.rules.name} does not have."


def _finding(one: RuleSetOutcome) -> Iterator[str]:
    said = f"{one.rules.name} finds {len(one.delays):,} of {counted(len(one.found), 'stand-still')}"
    if len(one.delays) > 1 and one.median_delay is not None:
        said += f", half of them within {duration(one.median_delay)}, the last after {duration(one.delays[-1])}"
    yield f"{said}, after {duration(one.delays[0])}." if len(one.delays) == 1 else f"{said}."
    if missed := one.missed:
        names = ", ".join(map(_named, missed[:_NAMED]))
        more = f" and {len(missed) - _NAMED:,} more" if len(missed) > _NAMED else ""
        yield f"{one.rules.name} misses {counted(len(missed), 'stand-still')}: {names}{more}."


def _price(one: RuleSetOutcome, first: RuleSetOutcome) -> str:
    """Say how many more stand-stills a rule set with fewer incidents misses, and how much longer its delay is."""
    fewer, lost = len(first.incidents) - len(one.incidents), len(first.delays) - len(one.delays)
    price = f"misses {lost:,} more {plural(lost, 'stand-still')}" if lost > 0 else "misses no more stand-stills"
    later = (one.median_delay or 0) - (first.median_delay or 0)
    late = f" The median delay of {one.rules.name} is {duration(later)} longer." if later > 0 else ""
    incidents = f"{fewer:,} fewer {plural(fewer, 'incident')}"
    return f"{one.rules.name} has {incidents} than {first.rules.name} and {price}.{late}"


def _named(what: Stall | ReplayedIncident) -> str:
    at = datetime.fromtimestamp(what.from_ms / 1000, UTC)
    lasted = duration((what.to_ms - what.from_ms) / 1000)
    return f"{what.group.cluster}/{what.group.consumer} at {at:%m-%d %H:%M} for {lasted}"
