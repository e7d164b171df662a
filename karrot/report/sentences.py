"""Writes the sentences of the report: the headline, names and times, and why a section is empty.

Names of groups, topics and owners can be any string, so a sentence is markup with escaped names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from statistics import linear_regression
from typing import NamedTuple

from markupsafe import Markup

from karrot.event import GroupKey
from karrot.history.answers_and_errors import Incident
from karrot.history.report_findings import (
    AnsweredTopics,
    Budget,
    Capacity,
    DayTotal,
    Findings,
    Flapping,
    GroupLag,
    Skewed,
)
from karrot.history.time_ranges import DayRange
from karrot.text import counted_at_start, duration, percent, plural, rate, shell_word, visible

_ALIKE = 0.1
_LISTS_ALL = Markup(
    "No event listed all partitions of its group, and this section needs such events. Webhooks list only the bad "
    "partitions. Resync (<code>KARROT_BURROW_URL</code>) and <code>karrot watch</code> list all."
)


class LagTrend(NamedTuple):
    """The share of minutes in two periods, with words for both periods and for the share."""

    now: float
    then: float
    days: str
    days_then: str
    of: str

    @property
    def word(self) -> str:
        """Compare both shares in words. A difference of up to a tenth counts as no difference."""
        if abs(self.now - self.then) <= _ALIKE * max(self.now, self.then):
            return "about as good as"
        return "better than" if self.now < self.then else "worse than"


def name(text: str) -> Markup:
    return Markup('<bdi class="name">{}</bdi>').format(visible(text))


def named(group: GroupKey | GroupLag | Budget | Capacity | Flapping | Skewed) -> Markup:
    """Format a group with its cluster, because group names are unique only within a cluster."""
    return Markup("{} of {}").format(name(group.consumer), name(group.cluster))


def when(at_s: float) -> str:
    """Format a time in UTC, such as ``Wed 18 Nov 14:05``."""
    at = datetime.fromtimestamp(at_s, UTC)
    return f"{on_day(at.date())} {at:%H:%M}"


def spent(share: float) -> str:
    """Format a share of a budget, such as ``446 %``. A share of 100 % or more has no decimals."""
    return percent(share) if share < 1 else f"{share:,.0%}".replace("%", " %")


def on_day(day: date) -> str:
    """Format a day, such as ``Wed 18 Nov``."""
    return f"{day:%a} {day.day} {day:%b}"


def period_said(period: DayRange) -> str:
    """Format a period, such as ``16 to 22 November 2026``."""
    first, last = period
    until = f"{last.day} {last:%B %Y}"
    if first == last:
        return until
    if first.year != last.year:
        return f"{first.day} {first:%B %Y} to {until}"
    return f"{first.day}{'' if first.month == last.month else f' {first:%B}'} to {until}"


def headline(findings: Findings) -> Markup:
    trend = compared(findings)
    if trend is None or not (trend.now or trend.then):
        return Markup("{}.").format(_worst(findings))
    said = Markup("{}; over all groups {} {} {}: {} of minutes {}, {} before.")
    shares = percent(trend.now), trend.of, percent(trend.then)
    return said.format(_worst(findings), trend.days, trend.word, trend.days_then, *shares)


def _worst(findings: Findings) -> Markup:
    if not findings.lags:
        return no_lag(findings)
    worst = findings.lags[0]
    least = "at least " if worst.is_bound else ""
    behind = f"{worst.peak_lag or 0:,} messages" if worst.peak_seconds is None else duration(worst.peak_seconds)
    at = "" if worst.peak_at_s is None else f" on {when(worst.peak_at_s)} UTC"
    return Markup("{} was furthest behind, {}{}{}").format(named(worst), least, behind, at)


def no_lag(findings: Findings) -> Markup:
    if not findings.unknown:
        return Markup("No group had any lag")
    return Markup("No group had any lag in the partitions whose lag is known. {}").format(_not_known(findings))


def _not_known(findings: Findings) -> str:
    return f"{counted_at_start(findings.unknown, 'group')} had partitions whose lag is not known"


def compared(findings: Findings) -> LagTrend | None:
    """Compare the period with the same number of days before it.

    Without such days, compare the period's last day with its other days. Return ``None`` if both lack data.
    """
    number = len(findings.period.dates)
    these, before = (
        ("the day was", "the day before") if number == 1 else (f"these {number} days were", f"the {number} before")
    )
    return _trend(findings, findings.days, findings.days_before, these, before) or _trend(
        findings, findings.days[-1:], findings.days[:-1], "the last day was", "the days before it"
    )


def _trend(
    findings: Findings, days: Sequence[DayTotal], then: Sequence[DayTotal], said: str, said_then: str
) -> LagTrend | None:
    target = findings.target_seconds
    beyond = [] if target is None else [(share_beyond, f"beyond {duration(target)} of lag")]
    for share, of in (*beyond, (share_not_ok, "not OK")):
        now, before = share(days), share(then)
        if now is not None and before is not None:
            return LagTrend(now, before, said, said_then, of)
    return None


def share_beyond(days: Sequence[DayTotal]) -> float | None:
    measured = sum(day.measured for day in days)
    return (measured - sum(day.within for day in days)) / measured if measured else None


def share_not_ok(days: Sequence[DayTotal]) -> float | None:
    seen = sum(day.seen for day in days)
    return (seen - sum(day.ok for day in days)) / seen if seen else None


# ---- Why a section is empty ----


def nothing_skewed(watched: AnsweredTopics) -> Markup:
    if not watched.topics:
        return _LISTS_ALL
    return Markup("{} examined. No partition stood out while its group was not OK or beyond the target.").format(
        _topics(watched.topics)
    )


def nothing_tight(watched: AnsweredTopics) -> Markup:
    if not watched.topics:
        return _LISTS_ALL
    return Markup(
        "{} examined. No consumer fell behind or caught up for five minutes. Before a consumer does one of these, its "
        "capacity is unknown."
    ).format(_topics(watched.topics))


def _topics(number: int) -> str:
    return f"{counted_at_start(number, 'topic')} {plural(number, 'was', 'were')}"


_OF_A_RULE = 3
_TIGHT = 0.9
_SOON_DAYS = 30
_TREND_DAYS = 3
_HALF = 0.5
_DAYS_NAMED = 5
_WORST_FIRST = ("err", "warn", "other")


class Advice(NamedTuple):
    """One next step. ``kind`` is the severity of the step, as a status: ``err``, ``warn`` or ``other``."""

    kind: str
    what: Markup
    why: Markup


def next_steps(findings: Findings) -> list[Advice]:
    """Return the next steps, the most severe first. Each rule gives steps for its three worst cases."""
    steps: list[Advice] = []
    for rule in _RULES:
        cases = list(rule(findings))
        steps += cases[:_OF_A_RULE]
        if len(cases) > _OF_A_RULE:
            more = f" The same is true of {len(cases) - _OF_A_RULE} more, listed below."
            steps[-1] = steps[-1]._replace(why=steps[-1].why + more)
    return sorted(steps, key=lambda step: _WORST_FIRST.index(step.kind))


def incidents_by_group(incidents: Iterable[Incident]) -> dict[GroupKey, list[Incident]]:
    found: dict[GroupKey, list[Incident]] = {}
    for incident in incidents:
        found.setdefault(incident.key, []).append(incident)
    return found


def _open_incidents(findings: Findings) -> Iterator[Advice]:
    for incident in findings.open_incidents:
        lasted = duration(findings.heard_until_s - incident.started_at.timestamp())
        group = f"--cluster {shell_word(incident.cluster)} --group {shell_word(incident.group)}"
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
    """Return in how many days the growing peaks reach the best consume rate; ``None`` if the peaks do not grow."""
    grows = growth_a_day(capacity)
    if grows is None or grows <= 0:
        return None
    return max(0.0, (capacity.best - capacity.days[-1].produced) / grows)


def growth_a_day(capacity: Capacity) -> float | None:
    """Return the growth of the daily peak per day; ``None`` for fewer than three days."""
    if len(capacity.days) < _TREND_DAYS:
        return None
    numbers = [float(peak.day.toordinal()) for peak in capacity.days]
    return linear_regression(numbers, [peak.produced for peak in capacity.days]).slope


def _uneven(findings: Findings) -> Iterator[Advice]:
    for one in findings.skewed:
        topic, share, minutes = name(one.topic), percent(one.share), duration(60 * one.minutes)
        why = Markup("The partition had {} of the lag of {} for {}").format(share, named(one), minutes)
        match one.cause:
            case "hot_partition":
                what = Markup("Look for a hot key in partition {} of {}").format(one.partition, topic)
                why += ", and its owner kept up with the other partitions. More consumers do not help."
            case "slow_owner":
                what = Markup("Look at the consumer {} before you add consumers").format(name(one.owner or ""))
                said = Markup("Partition {} of {} was the worst. {}, and its owner's other partitions lagged too.")
                why = said.format(one.partition, topic, why)
            case _:
                what = Markup("Look at partition {} of {}").format(one.partition, topic)
                why += ". Its owner has no other partition, so the cause is a hot key or a slow consumer."
        yield Advice("warn", what, why)


def _overspent(findings: Findings) -> Iterator[Advice]:
    target = findings.target_seconds
    for one in findings.budgets:
        if one.spent > 1 and target is not None:
            most = Markup(" On its worst day, {} had the largest lag.")
            mostly = Markup() if one.worst_partition is None else most.format(name(one.worst_partition))
            yield Advice(
                "err" if one.spent > 2 else "warn",  # noqa: PLR2004 (twice the budget)
                Markup("Bring the lag of {} back below {}").format(named(one), duration(target)),
                Markup("It used {} of its error budget: {} beyond the target, and {} are allowed.{}").format(
                    spent(one.spent), duration(60 * one.beyond), duration(60 * one.allowed), mostly
                ),
            )


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
        more = f" and {len(missing) - _DAYS_NAMED} days more" if len(missing) > _DAYS_NAMED else ""
        why = Markup("No event came on {}.").format(", ".join(missing[:_DAYS_NAMED]) + more)
        yield Advice("other", Markup("Find out why no events came"), why)


def _unknown_lags(findings: Findings) -> Iterator[Advice]:
    if findings.unknown:
        what = Markup("Find out why the lag of some partitions is not known")
        why = Markup(
            "{}, and no sum has these partitions. In the table lag_minute, these minutes have no <code>lag_max</code>, "
            "or a <code>coverage</code> below 1."
        )
        yield Advice("other", what, why.format(_not_known(findings)))


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


_RULES: tuple[Callable[[Findings], Iterator[Advice]], ...] = (
    _open_incidents,
    _short_of_capacity,
    _uneven,
    _overspent,
    _flapping,
    _never_closed,
    _silent_days,
    _unknown_lags,
    _unread,
    _unmeasured,
)
