"""Writes the report as one HTML file with inline SVG. The file has no scripts and loads no other files."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from karrot import __version__
from karrot.history import History
from karrot.history.answers_and_errors import Incident
from karrot.history.report_findings import GROUPS_SHOWN, INCIDENTS_SHOWN, Capacity, Findings
from karrot.jinja_filters import FILTERS, dash_if_unknown
from karrot.render import shipped_templates
from karrot.report import chart_shapes, sentences


class ReportPage(NamedTuple):
    html: str
    headline: str


class GroupLine(NamedTuple):
    cluster: str
    consumer: str
    spans: Sequence[chart_shapes.IncidentBar]
    seconds: float
    open: bool


def write_report(history: History, output: Path, first: date | None = None, last: date | None = None) -> str:
    """Write the report of the given days, or of the newest seven, and return its headline.

    Raises a `HistoryError`, and OSError if the file cannot be written.
    """
    written = page(history.findings(first, last), made_at=datetime.now(UTC))
    output.write_text(written.html, encoding="utf-8")
    return written.headline


def page(findings: Findings, *, made_at: datetime) -> ReportPage:
    headline = sentences.headline(findings)
    html = _environment().get_template("report.html").render(_context(findings, headline, made_at))
    return ReportPage(html, headline.striptags())


@cache
def _environment() -> Environment:
    made = Environment(
        # parts.html and the style sheet are in templates/web: the service's pages use them too.
        loader=shipped_templates("report", "web"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS, when=sentences.when, spent=dash_if_unknown(sentences.spent))
    return made


def _context(findings: Findings, headline: Markup, made_at: datetime) -> dict[str, Any]:
    lines = _lines(findings)
    return {
        "found": findings,
        "period": findings.period,
        "ticks": chart_shapes.ticks(findings.period),
        "headline": headline,
        "period_said": sentences.period_said(findings.period),
        "made_at": made_at,
        "version": __version__,
        "heard_s": findings.heard_until_s - findings.heard_from_s,
        "beyond": sentences.share_beyond(findings.days),
        "not_ok": sentences.share_not_ok(findings.days),
        "totals": findings.incident_totals,
        "steps": sentences.next_steps(findings),
        "lines": lines[:GROUPS_SHOWN],
        "more_lines": max(0, len(lines) - GROUPS_SHOWN),
        "rows": GROUPS_SHOWN,
        "most_incidents": INCIDENTS_SHOWN,
        "longest": findings.incidents[:10],
        "lasted": _lasted,
        "reaches": _reaches,
        "no_lag": sentences.no_lag(findings),
        "nothing_skewed": sentences.nothing_skewed(findings.skew_watched),
        "nothing_tight": sentences.nothing_tight(findings.rates_watched),
        "svg": chart_shapes,
    }


def _lines(findings: Findings) -> list[GroupLine]:
    made = [
        GroupLine(
            *group,
            chart_shapes.spans(incidents, findings),
            sum(_lasted(one, findings) for one in incidents),
            any(one.ended_at is None for one in incidents),
        )
        for group, incidents in sentences.incidents_by_group(findings.incidents).items()
    ]
    return sorted(made, key=lambda line: -line.seconds)


def _lasted(incident: Incident, findings: Findings) -> float:
    """Return the duration of an incident in seconds. An open incident lasts until the newest event."""
    ended_s = findings.heard_until_s if incident.ended_at is None else incident.ended_at.timestamp()
    return ended_s - incident.started_at.timestamp()


def _reaches(capacity: Capacity) -> str:
    left = sentences.days_left(capacity)
    if capacity.days[-1].produced >= capacity.best:
        return "now"
    if left is None:
        return "not growing"
    return f"in {max(1, round(left)):,} days" if left < 365 else "over a year"  # noqa: PLR2004 (days of a year)
