"""Writes the sentences of the report: the headline, names and times, and why a section is empty.

Names of groups, topics and owners can be any text, so a sentence is markup in which names are escaped.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple, Protocol

from markupsafe import Markup

from karrot.event import DayRange
from karrot.pipeline.report.finding_types import AnsweredTopics, DayTotal, Findings
from karrot.text import counted_at_start, duration, percent, plural, visible

_ALIKE = 0.1
_LISTS_ALL = Markup(
    "No event listed all partitions of its group, and this section needs such events. Webhooks list only the bad "
    "partitions. Resync (<code>KARROT_BURROW_URL</code>) and <code>karrot watch</code> list all."
)


class OfGroup(Protocol):
    """A finding about a group."""

    @property
    def cluster(self) -> str:
        """The cluster of the group."""

    @property
    def consumer(self) -> str:
        """The name of the group."""


class LagTrend(NamedTuple):
    """A share of minutes in two periods, with words for both periods and for the share."""

    now: float
    then: float
    days: str
    days_then: str
    of: str

    @property
    def word(self) -> str:
        """Compare both shares in words. A difference of up to a tenth counts as none."""
        if abs(self.now - self.then) <= _ALIKE * max(self.now, self.then):
            return "about as good as"
        return "better than" if self.now < self.then else "worse than"


def name(text: str) -> Markup:
    """Escape a name."""
    return Markup('<bdi class="name">{}</bdi>').format(visible(text))


def named(group: OfGroup) -> Markup:
    """Write a group with its cluster, because several clusters may have a group of this name."""
    return Markup("{} of {}").format(name(group.consumer), name(group.cluster))


def when(at_s: float) -> str:
    """``Wed 18 Nov 14:05``, in UTC."""
    at = datetime.fromtimestamp(at_s, UTC)
    return f"{on_day(at.date())} {at:%H:%M}"


def spent(share: float) -> str:
    """``446 %``: a share of a budget. From 100 % on it has no decimals."""
    return percent(share) if share < 1 else f"{share:,.0%}".replace("%", " %")


def on_day(day: date) -> str:
    """``Wed 18 Nov``."""
    return f"{day:%a} {day.day} {day:%b}"


def period_said(period: DayRange) -> str:
    """``16 to 22 November 2026``."""
    first, last = period
    until = f"{last.day} {last:%B %Y}"
    if first == last:
        return until
    if first.year != last.year:
        return f"{first.day} {first:%B %Y} to {until}"
    return f"{first.day}{'' if first.month == last.month else f' {first:%B}'} to {until}"


def headline(findings: Findings) -> Markup:
    """The report in one sentence: which group was furthest behind, and whether lag is better or worse than before."""
    trend = compared(findings)
    if trend is None or not (trend.now or trend.then):
        return Markup("{}.").format(_worst(findings))
    said = Markup("{}; over all groups {} {} {}: {} of minutes {}, {} before.")
    shares = percent(trend.now), trend.of, percent(trend.then)
    return said.format(_worst(findings), trend.days, trend.word, trend.days_then, *shares)


def _worst(findings: Findings) -> Markup:
    if not findings.lags:
        return Markup("No group had any lag")
    worst = findings.lags[0]
    behind = f"{worst.peak_lag or 0:,} messages" if worst.peak_seconds is None else duration(worst.peak_seconds)
    at = "" if worst.peak_at_s is None else f" on {when(worst.peak_at_s)} UTC"
    return Markup("{} was furthest behind, {}{}").format(named(worst), behind, at)


def compared(findings: Findings) -> LagTrend | None:
    """Compare the period with the same number of days before it.

    Without such days, compare the period's last day with its other days. Return ``None`` if neither is possible.
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
    """The share of measured minutes beyond the target."""
    measured = sum(day.measured for day in days)
    return (measured - sum(day.within for day in days)) / measured if measured else None


def share_not_ok(days: Sequence[DayTotal]) -> float | None:
    """The share of minutes in which a group was worse than OK."""
    seen = sum(day.seen for day in days)
    return (seen - sum(day.ok for day in days)) / seen if seen else None


# ---- Why a section is empty ----


def nothing_skewed(watched: AnsweredTopics) -> Markup:
    """Say why no hot partition is shown."""
    if not watched.topics:
        return _LISTS_ALL
    return Markup("{} examined. No partition stood out while its group was not OK or beyond the target.").format(
        _topics(watched.topics)
    )


def nothing_tight(watched: AnsweredTopics) -> Markup:
    """Say why no consumer's capacity is shown."""
    if not watched.topics:
        return _LISTS_ALL
    return Markup(
        "{} examined. No consumer fell behind or caught up for five minutes. Before a consumer does one of these, its "
        "capacity is unknown."
    ).format(_topics(watched.topics))


def _topics(number: int) -> str:
    return f"{counted_at_start(number, 'topic')} {plural(number, 'was', 'were')}"
