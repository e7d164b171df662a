import datetime as dt
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.history.report_findings import (
    AnsweredTopics,
    Budget,
    Capacity,
    DayBurn,
    DayPeak,
    DayTotal,
    Findings,
    Flapping,
    Hours,
    IncidentTotals,
    LagPoint,
    Quarantined,
    Skewed,
)
from karrot.history.time_ranges import DayRange
from karrot.report import chart_shapes, sentences
from karrot.report.html_page import page
from support.report_findings import MONDAY, WEEK, hour_at, make_findings, make_incident, quiet_week

MADE_AT = dt.datetime(2026, 11, 23, 8, tzinfo=dt.UTC)
_VOID = {"meta", "br", "hr", "img", "input", "link"}


class _Reader(HTMLParser):
    """A parser that collects every element with its text, and checks that each element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def _read(findings: Findings) -> _Reader:
    read = _Reader(page(findings, made_at=MADE_AT).html)
    assert read.open == []
    return read


def _text(findings: Findings) -> str:
    return re.sub(r"\s+", " ", "".join(_read(findings).text))


def _steps(**fields: Any) -> list[str]:
    told = sentences.next_steps(quiet_week()._replace(**fields))
    return [f"{step.kind}: {step.what.striptags()}. {step.why.striptags()}" for step in told]


# ---- The page ----


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    read = _read(make_findings())
    assert {tag for tag, _ in read.tags} & {"script", "link", "img", "iframe", "object", "a"} == set()
    addresses = [
        value for _, attrs in read.tags for name, value in attrs.items() if name in {"src", "href", "xlink:href"}
    ]
    assert set(addresses) == {"#days"}
    html = page(make_findings(), made_at=MADE_AT).html
    assert not re.search(r"https?:|@import|url\((?!#)|\son\w+=", html)


def test_every_chart_has_a_title_and_a_description() -> None:
    html = page(make_findings(), made_at=MADE_AT).html
    charts = re.findall(r'<svg[^>]*role="img">.*?</svg>', html, re.DOTALL)
    assert len(charts) == 7
    for chart in charts:
        assert re.match(r"<svg[^>]*><title>[^<]+</title><desc>[^<]+</desc>", chart)
    for tag, attrs in _read(make_findings()).tags:
        assert tag != "svg" or attrs.get("role") == "img" or "aria-hidden" in attrs or attrs.keys() & {"viewbox", "x"}


def test_the_page_has_the_findings_of_the_week() -> None:
    text = _text(make_findings())
    for said in (
        "Consumer lag · 16 to 22 November 2026, times in UTC",
        "2 incidents, 1 still open",
        "2.2 % of minutes beyond 1 min of lag; 1 % allowed",
        "446 % 7 h 30 min 1 h 40 min orders.v1/3",
        "Wed 18 Nov 12:00 3 h 30 min close 9,000 orders.v1",
        "a hot key",
        "100 /s 82 /s 22 % in 9 days",
        "Events from Mon 16 Nov 00:00 to Mon 23 Nov 00:00 UTC.",
        "made 2026-11-23 08:00:00 UTC",
    ):
        assert said in text


def test_open_incidents_are_counted_that_are_not_among_the_longest() -> None:
    findings = make_findings(incidents=make_findings().incidents[:1], incident_totals=IncidentTotals(600, 7, 0))
    assert "600 incidents, 7 still open" in _text(findings)


def test_an_unknown_lag_is_not_called_no_lag() -> None:
    text = _text(quiet_week()._replace(unknown=3))
    known = "No group had any lag in the partitions whose lag is known. 3 groups had partitions whose lag is not known."
    assert text.count(known) == 2
    assert "Find out why the lag of some partitions is not known" in text
    assert "In the table lag_minute, these minutes have no lag_max, or a coverage below 1." in text
    assert "No group had any lag." not in text


def test_a_lower_bound_is_shown_as_one() -> None:
    findings = make_findings()
    text = _text(findings._replace(lags=[findings.lags[0]._replace(is_bound=True)]))
    assert "orders of prod was furthest behind, at least 1 h 6 min on" in text
    assert text.count("at least 1 h 6 min") == 2


def test_sections_without_rows_give_the_reason() -> None:
    text = _text(quiet_week())
    for said in (
        "Nothing. No incident is open, every group is within its error budget, and every consumer has enough capacity.",
        "No group had any lag.",
        "There was no incident in these days.",
        "Every group was OK in all of its events.",
        "No group had a lag of more than 1 min in any minute.",
        "No event listed all partitions of its group, and this section needs such events.",
    ):
        assert said in text
    watched = quiet_week()._replace(skew_watched=AnsweredTopics(3, 1), rates_watched=AnsweredTopics(1, 0))
    text = _text(watched)
    assert "3 topics were examined. No partition stood out while its group was not OK or beyond the target." in text
    assert "One topic was examined. No consumer fell behind or caught up for five minutes." in text
    unmeasured = quiet_week()._replace(days=[DayTotal(MONDAY, 1, 10, 10, 0, 0)], target_seconds=None, objective=None)
    assert "Lag in seconds was not known in any minute, so no objective can be judged." in _text(unmeasured)


@settings(max_examples=25)
@given(st.text(min_size=1, max_size=40))
def test_any_name_stays_text(text: str) -> None:
    _assert_harmless(text)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"><b onload=x>', "</title></svg><p>", "{{ 7 * 7 }}", "]]>"]
)
def test_a_name_made_of_markup_stays_text(text: str) -> None:
    _assert_harmless(text)


def _assert_harmless(text: str) -> None:
    calm, told = make_findings(), make_findings()
    hostile = told._replace(
        lags=[one._replace(consumer=text, cluster=text) for one in told.lags],
        incidents=[one._replace(group=text, cluster=text, topics=(text,)) for one in told.incidents],
        open_incidents=[one._replace(group=text, cluster=text) for one in told.open_incidents],
        hours=[one._replace(consumer=text) for one in told.hours],
        skewed=[one._replace(consumer=text, topic=text, owner=text, cause="slow_owner") for one in told.skewed],
        capacities=[one._replace(consumer=text, topic=text) for one in told.capacities],
        budgets=[one._replace(consumer=text, worst_partition=text) for one in told.budgets],
    )
    assert [tag for tag, _ in _read(hostile).tags if tag != "bdi"] == [
        tag for tag, _ in _read(calm).tags if tag != "bdi"
    ]


def test_the_headline_is_available_as_plain_text() -> None:
    lag = make_findings().lags[0]._replace(consumer="<b>&")
    assert page(make_findings(lags=[lag]), made_at=MADE_AT).headline.startswith(
        "<b>& of prod was furthest behind, 1 h 6 min"
    )


# ---- Words ----


@pytest.mark.parametrize(
    ("days", "before", "said"),
    [
        ([30] * 7, [60] * 7, "these 7 days were better than the 7 before: 1 % of minutes …, 2.1 % before."),
        ([30] * 7, [31] * 7, "these 7 days were about as good as the 7 before: 1 % of minutes …, 1.1 % before."),
        ([0, 0, 30], [], "the last day was worse than the days before it: 1 % of minutes …, 0 % before."),
        ([30], [], ""),
        ([0, 0], [], ""),
    ],
    ids=["a better week", "a similar week", "a worse last day", "one day", "two days without lag"],
)  # fmt: skip
def test_the_headline_compares_with_the_days_before(days: list[int], before: list[int], said: str) -> None:
    findings = quiet_week()._replace(days=_days(days), days_before=_days(before))
    said = said.replace("…", "beyond 1 min of lag")
    assert sentences.headline(findings) == (
        f"No group had any lag; over all groups {said}" if said else "No group had any lag."
    )


def test_the_status_is_compared_if_lag_in_seconds_is_unknown() -> None:
    days = [day._replace(measured=0, within=0) for day in _days([288, 0])]
    told = sentences.compared(quiet_week()._replace(days=days))
    assert told == sentences.LagTrend(0.0, 0.1, "the last day was", "the days before it", "not OK")


def _days(beyond: list[int]) -> list[DayTotal]:
    return [
        DayTotal(MONDAY + dt.timedelta(days=number), 2, 2_880, 2_880 - bad, 2_880, 2_880 - bad)
        for number, bad in enumerate(beyond)
    ]


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        pytest.param((2026, 11, 16), (2026, 11, 22), "16 to 22 November 2026", id="one month"),
        pytest.param((2026, 11, 28), (2026, 12, 4), "28 November to 4 December 2026", id="two months"),
        pytest.param((2026, 12, 29), (2027, 1, 4), "29 December 2026 to 4 January 2027", id="two years"),
        pytest.param((2026, 11, 16), (2026, 11, 16), "16 November 2026", id="one day"),
    ],
)
def test_a_period_is_written_in_words(first: tuple[int, int, int], last: tuple[int, int, int], said: str) -> None:
    assert sentences.period_said(DayRange(dt.date(*first), dt.date(*last))) == said


# ---- What to do next ----


def test_a_quiet_week_has_no_next_steps() -> None:
    assert _steps() == []


def test_an_open_incident_is_the_first_next_step() -> None:
    assert _steps(open_incidents=[make_incident(hour_at(6, 20), None, group="it's")]) == [
        (
            "err: Look at it's of prod now. Its incident began on Sun 22 Nov 20:00 UTC and is still open, after 4 h. "
            "karrot lag --burrow URL --cluster prod --group 'it'\"'\"'s' shows its partitions."
        )
    ]


def test_each_rule_lists_three_steps_and_counts_the_others() -> None:
    told = _steps(open_incidents=[make_incident(hour_at(6, hour), None) for hour in range(5)])
    assert len(told) == 3
    assert told[-1].endswith("The same is true of 2 more, listed below.")


def _peaks(*rates: float) -> list[DayPeak]:
    return [DayPeak(MONDAY + dt.timedelta(days=day), rate) for day, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("peaks", "said"),
    [
        (
            (70.0, 74.0, 78.0),
            "warn: … 78 /s. Peaks grow by 4.0 /s a day. At this pace they reach its best rate in about 6 days.",
        ),
        ((70.0, 95.0), "warn: … 95 /s. That is 95 % of its best rate, and such peaks become lag."),
        ((70.0, 120.0), "err: … 120 /s. That is more than its best rate, and such peaks become lag."),
    ],
    ids=["peaks that grow", "a peak just below the best rate", "a peak above the best rate"],
)
def test_a_consumer_with_a_shrinking_margin_is_reported_before_the_margin_is_gone(
    peaks: tuple[float, ...], said: str
) -> None:
    (step,) = _steps(capacities=[Capacity("prod", "orders", "t", 100.0, _peaks(*peaks))])
    kind, why = said.split(" … ")
    assert step.startswith(
        f"{kind} Give orders of prod more consumers, or faster ones. Its best consume rate is 100 /s on t"
    )
    assert step.endswith(why)


def test_a_consumer_with_enough_margin_is_not_reported() -> None:
    assert _steps(capacities=[Capacity("prod", "orders", "t", 100.0, _peaks(80.0, 70.0, 60.0))]) == []


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("hot_partition", ("Look for a hot key in partition 3 of t. The partition had 80 % of the lag of orders "
                          "of prod for 2 h, and its owner kept up with the other partitions. "
                          "More consumers do not help.")),
        ("slow_owner", ("Look at the consumer o-1 before you add consumers. Partition 3 of t was the worst. "
                       "The partition had 80 % of the lag of orders of prod for 2 h, "
                       "and its owner's other partitions lagged too.")),
        (None, ("Look at partition 3 of t. The partition had 80 % of the lag of orders of prod for 2 h. "
               "Its owner has no other partition, so the cause is a hot key or a slow consumer.")),
    ],
    ids=["a hot partition", "a slow owner", "an unknown cause"],
)  # fmt: skip
def test_uneven_lag_names_the_key_or_the_consumer_to_look_at(cause: str | None, said: str) -> None:
    assert _steps(skewed=[Skewed("prod", "orders", "t", 120, 0.8, 0.7, 3, "o-1", cause)]) == [f"warn: {said}"]


def test_a_spent_budget_is_reported_in_minutes() -> None:
    def budget(spent: float) -> Budget:
        return Budget("prod", "orders", 10_000, round(100 * spent), 100.0, spent, None, [])

    assert _steps(budgets=[budget(2.5), budget(0.5)]) == [
        (
            "err: Bring the lag of orders of prod back below 1 min. "
            "It used 250 % of its error budget: 4 h 10 min beyond the target, and 1 h 40 min are allowed."
        )
    ]


def test_frequent_short_incidents_lead_to_a_change_of_settings() -> None:
    (step,) = _steps(flapping=[Flapping("prod", "orders", 12, 360.0)])
    assert step.startswith(
        "other: Reduce the short incidents of orders of prod. It had 12 incidents, half of them shorter than 6 min."
    )


def test_missing_data_are_reported() -> None:
    days = [DayTotal(day, 1, 100, 100, 10, 10) for day in WEEK.dates if day.day != 18]
    told = _steps(days=days, quarantined=Quarantined(2, 40), incident_totals=IncidentTotals(1, 0, 1))
    assert [step.partition(". ")[2] for step in told] == [
        (
            "One incident ended because no more events of the group came. Set send-close = true in Burrow's notifier. "
            "If this option is set, Burrow or the connection to Karrot was down."
        ),
        "No event came on Wed 18 Nov.",
        "Lines of the archive: 2 could not be used and 40 are missing from their segments.",
        "Lag in seconds was known in only 10 % of the minutes. The budget counts only these minutes.",
    ]


# ---- Shapes ----


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (1, "00:00 03:00 06:00 09:00 12:00 15:00 18:00 21:00"),
        (2, "00:00 06:00 12:00 18:00 00:00 06:00 12:00 18:00"),
        (3, "00:00 12:00 00:00 12:00 00:00 12:00"),
        (7, "Mon 16 Tue 17 Wed 18 Thu 19 Fri 20 Sat 21 Sun 22"),
        (30, "Mon 16 Sat 21 Thu 26 Tue 1 Sun 6 Fri 11"),
    ],
)
def test_an_axis_has_a_few_ticks(days: int, said: str) -> None:
    period = DayRange(MONDAY, MONDAY + dt.timedelta(days=days - 1))
    assert " ".join(tick.text for tick in chart_shapes.ticks(period)) == said


@given(
    st.integers(-40 * 86_400, 40 * 86_400),
    st.none() | st.integers(0, 40 * 86_400),
)
def test_an_incident_stays_within_the_chart(began: int, lasted: int | None) -> None:
    one = make_incident(WEEK.start_s + began, None if lasted is None else WEEK.start_s + began + lasted)
    (span,) = chart_shapes.spans([one], quiet_week())
    assert span.at >= 0
    assert span.width >= 0.25
    assert span.at + span.width <= 100.001


def test_a_curve_has_a_gap_at_unknown_values() -> None:
    hour, day = 3_600, DayRange(MONDAY, MONDAY)
    told = [(0, 0.0), (1, 50.0), (2, None), (3, 100.0), (5, 25.0)]
    points = [LagPoint(day.start_s + n * hour, seconds) for n, seconds in told]
    assert chart_shapes.line(points, day, 100.0) == [
        "2.08,100.00 6.25,50.00",
        "14.58,0.00 14.58,0.00",
        "22.92,75.00 22.92,75.00",
    ]


def test_the_shares_of_all_statuses_fill_the_bar() -> None:
    bars = chart_shapes.share_bars(Hours("prod", "orders", ok=50, warn=20, err=10), 100)
    assert [(bar.kind, bar.at, bar.width) for bar in bars] == [
        ("err", 0.0, 10.0),
        ("warn", 10.0, 20.0),
        ("ok", 30.0, 50.0),
        ("other", 80.0, 20.0),
    ]


def test_a_burn_rate_of_one_has_half_the_height_and_an_unmeasured_day_is_left_out() -> None:
    days = [DayBurn(day, rate) for day, rate in zip(WEEK.dates, (0.0, 0.5, 1.0, 9.0, None), strict=False)]
    budget = Budget("prod", "orders", 1, 1, 1.0, 1.0, None, days)
    assert [(bar.kind, bar.height) for bar in chart_shapes.burn_bars(budget, WEEK)] == [
        ("ok", 1.5),
        ("warn", 25.0),
        ("warn", 50.0),
        ("err", 100.0),
    ]
