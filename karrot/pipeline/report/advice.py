"""Writes the report's list of next steps by rules over the findings: what to do, and why, with figures."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import linear_regression
from typing import NamedTuple

from markupsafe import Markup

from karrot.event import GroupKey, Incident
from karrot.pipeline.report.finding_types import Budget, Capacity, Findings, Skewed
from karrot.pipeline.report.sentences import name, named, on_day, spent, when
from karrot.text import counted_at_start, duration, percent, rate, visible

_OF_A_RULE = 3
_TIGHT = 0.9
_SOON_DAYS = 30
_TREND_DAYS = 3
_HALF = 0.5
_WORST_FIRST = ("err", "warn", "other")


class Advice(NamedTuple):
    """One next step. ``kind`` is the severity of the step, as a status: ``err``, ``warn`` or ``other``."""

    kind: str
    what: Markup
    why: Markup


def next_steps(findings: Findings) -> list[Advice]:
    """The next steps, the most severe first. Each rule gives steps for its three worst cases."""
    steps: list[Advice] = []
    for rule in _RULES:
        cases = list(rule(findings))
        steps += cases[:_OF_A_RULE]
        if len(cases) > _OF_A_RULE:
            more = f" The same is true of {len(cases) - _OF_A_RULE} more, listed below."
            steps[-1] = steps[-1]._replace(why=steps[-1].why + more)
    return sorted(steps, key=lambda step: _WORST_FIRST.index(step.kind))


def incidents_by_group(incidents: Iterable[Incident]) -> dict[GroupKey, list[Incident]]:
    """Collect the incidents of each group."""
    found: dict[GroupKey, list[Incident]] = {}
    for incident in incidents:
        found.setdefault(incident.key, []).append(incident)
    return found


def _open_incidents(findings: Findings) -> Iterator[Advice]:
    for incident in findings.open_incidents:
        lasted = duration(findings.heard_until_s - incident.started_at.timestamp())
        group = f"--cluster {_quoted(incident.cluster)} --group {_quoted(incident.group)}"
        command = f"karrot lag --burrow URL {group}"
        yield Advice(
            "err" if incident.worst_status == "ERR" else "warn",
            Markup("Look at {} now").format(named(incident.key)),
            Markup(
                "Its incident began on {} UTC and is still open, after {}. <code>{}</code> shows its partitions."
            ).format(when(incident.started_at.timestamp()), lasted, command),
        )


def _short_of_capacity(findings: Findings) -> Iterator[Advice]:
    for one in findings.capacities:
        last = one.days[-1]
        left, growth = days_left(one), growth_a_day(one)
        if last.produced >= _TIGHT * one.best:
            reached = "more than" if last.produced >= one.best else f"{percent(last.produced / one.best)} of"
            why = f"That is {reached} its best rate, and such peaks become lag."
        elif growth is not None and left is not None and left <= _SOON_DAYS:
            days = max(1, round(left))
            why = f"Peaks grow by {rate(growth)} a day. At this pace they reach its best rate in about {days} days."
        else:
            continue
        yield Advice(
            "err" if last.produced >= one.best else "warn",
            Markup("Give {} more consumers, or faster ones").format(named(one)),
            Markup("Its best consume rate is {} on {}, and the peak produce rate on {} was {}. {}").format(
                rate(one.best), name(one.topic), on_day(last.day), rate(last.produced), why
            ),
        )


def days_left(capacity: Capacity) -> float | None:
    """In how many days the peaks reach the best rate if they grow as before; ``None`` if they do not grow."""
    grows = growth_a_day(capacity)
    if grows is None or grows <= 0:
        return None
    return max(0.0, (capacity.best - capacity.days[-1].produced) / grows)


def growth_a_day(capacity: Capacity) -> float | None:
    """By how much the daily peak grows per day; ``None`` for fewer than three days."""
    if len(capacity.days) < _TREND_DAYS:
        return None
    numbers = [float(peak.day.toordinal()) for peak in capacity.days]
    return linear_regression(numbers, [peak.produced for peak in capacity.days]).slope


def _uneven(findings: Findings) -> Iterator[Advice]:
    for one in findings.skewed:
        share, minutes = percent(one.share), duration(60 * one.minutes)
        holds = Markup("The partition had {} of the lag of {} for {}").format(share, named(one), minutes)
        yield Advice("warn", *_DEEDS[one.cause or ""](one, holds))


def _hot_partition(one: Skewed, holds: Markup) -> tuple[Markup, Markup]:
    what = Markup("Look for a hot key in partition {} of {}").format(one.partition, name(one.topic))
    return what, holds + ", and its owner kept up with the other partitions. More consumers do not help."


def _slow_owner(one: Skewed, holds: Markup) -> tuple[Markup, Markup]:
    what = Markup("Look at the consumer {} before you add consumers").format(name(one.owner or ""))
    why = Markup("Partition {} of {} was the worst. {}, and its owner's other partitions lagged too.")
    return what, why.format(one.partition, name(one.topic), holds)


def _lone_partition(one: Skewed, holds: Markup) -> tuple[Markup, Markup]:
    what = Markup("Look at partition {} of {}").format(one.partition, name(one.topic))
    return what, holds + ". Its owner has no other partition, so the cause is a hot key or a slow consumer."


_DEEDS: dict[str, Callable[[Skewed, Markup], tuple[Markup, Markup]]] = {
    "hot_partition": _hot_partition,
    "slow_owner": _slow_owner,
    "": _lone_partition,
}


def _overspent(findings: Findings) -> Iterator[Advice]:
    target = findings.target_seconds
    for one in findings.budgets:
        if one.spent > 1 and target is not None:
            yield Advice(
                "err" if one.spent > 2 else "warn",  # noqa: PLR2004 (twice what was allowed)
                Markup("Bring the lag of {} back below {}").format(named(one), duration(target)),
                Markup("It used {} of its error budget: {} beyond the target, and {} are allowed.{}").format(
                    spent(one.spent), duration(60 * one.beyond), duration(60 * one.allowed), _mostly(one)
                ),
            )


def _mostly(one: Budget) -> Markup:
    if one.worst_partition is None:
        return Markup()
    return Markup(" On its worst day, {} had the largest lag.").format(name(one.worst_partition))


def _flapping(findings: Findings) -> Iterator[Advice]:
    for one in findings.flapping:
        yield Advice(
            "other",
            Markup("Reduce the short incidents of {}").format(named(one)),
            Markup(
                "It had {} incidents, half of them shorter than {}. With a larger <code>intervals</code>, Burrow's "
                "storage keeps a longer window. With <code>threshold = 3</code>, its notifier posts only ERR."
            ).format(one.ended, duration(one.median_s)),
        )


def _never_closed(findings: Findings) -> Iterator[Advice]:
    silent = findings.incident_totals.silent
    if silent:
        yield Advice(
            "other",
            Markup("Make Burrow close its incidents"),
            Markup(
                "{} ended because no more events of the group came. Set <code>send-close = true</code> in Burrow's "
                "notifier. If this option is set, Burrow or the connection to Karrot was down."
            ).format(counted_at_start(silent, "incident")),
        )


def _silent_days(findings: Findings) -> Iterator[Advice]:
    known = {day.day for day in findings.days}
    missing = [on_day(day) for day in findings.period.dates if day not in known]
    if missing:
        what = Markup("Find out why no events came")
        yield Advice("other", what, Markup("No event came on {}.").format(_listed(missing)))


def _unread(findings: Findings) -> Iterator[Advice]:
    lines, lost = findings.quarantined
    if lines or lost:
        what = Markup("Check the table <code>quarantine</code>")
        parts = [f"{lines:,} could not be used"] * bool(lines) + [f"{lost:,} are missing from their segments"] * bool(
            lost
        )
        yield Advice("other", what, Markup("Lines of the archive: {}.").format(" and ".join(parts)))


def _unmeasured(findings: Findings) -> Iterator[Advice]:
    seen, measured = sum(day.seen for day in findings.days), sum(day.measured for day in findings.days)
    if measured < _HALF * seen:
        what = Markup("Do not rely on the error budget")
        why = Markup("Lag in seconds was known in only {} of the minutes. The budget counts only these minutes.")
        yield Advice("other", what, why.format(percent(measured / seen)))


def _listed(texts: Sequence[str]) -> str:
    shown, more = texts[:5], len(texts) - 5
    return ", ".join(shown) + (f" and {more} days more" if more > 0 else "")


def _quoted(text: str) -> str:
    return shlex.quote(visible(text))


_RULES: tuple[Callable[[Findings], Iterator[Advice]], ...] = (
    _open_incidents,
    _short_of_capacity,
    _uneven,
    _overspent,
    _flapping,
    _never_closed,
    _silent_days,
    _unread,
    _unmeasured,
)
