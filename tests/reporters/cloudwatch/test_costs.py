import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.event import GroupKey
from karrot.reporters.cloudwatch.costs import bill, monthly_estimate
from karrot.reporters.cloudwatch.options import GroupMetricName, Layout, Options

LAG, DIMENSIONS = [GroupMetricName.LAG], [Layout.DIMENSIONS]


@pytest.mark.parametrize(
    ("groups", "metrics", "calls"),
    [
        (10, 3.00, (0.88, 0.44)),
        (100, 30.00, (0.88, 0.44)),
        (1_000, 300.00, (0.88, 0.44)),
        (10_000, 3_000.00, (8.76, 4.38)),
    ],
)
def test_a_metric_per_group_has_the_price_of_the_price_list(
    groups: int, metrics: float, calls: tuple[float, float]
) -> None:
    for interval_s, cost in zip((30, 60), calls, strict=True):
        made = monthly_estimate(groups, LAG, 0, interval_s, DIMENSIONS)
        assert round(made.metrics_usd, 2) == metrics
        assert round(made.calls_usd, 2) == cost


@pytest.mark.parametrize(
    ("groups", "usd"), [(10_001, 3_000.10), (250_000, 27_000), (1_000_000, 64_500), (1_000_100, 64_502)]
)
def test_more_metrics_cost_less_each(groups: int, usd: float) -> None:
    assert monthly_estimate(groups, LAG, 0, 30, DIMENSIONS).metrics_usd == pytest.approx(usd)


@pytest.mark.parametrize(
    ("metrics", "layouts", "count"),
    [
        ([GroupMetricName.LAG], [Layout.DIMENSIONS], 102),
        ([GroupMetricName.LAG, GroupMetricName.LAG_SECONDS], [Layout.DIMENSIONS], 202),
        ([GroupMetricName.LAG, GroupMetricName.LAG_SECONDS], [Layout.LEGACY], 100),
        ([GroupMetricName.LAG, GroupMetricName.LAG_SECONDS], [Layout.LEGACY, Layout.DIMENSIONS], 302),
    ],
    ids=["one metric", "two metrics", "two metrics in the legacy layout", "two metrics in both layouts"],
)
def test_metrics_layouts_and_heartbeats_are_counted(
    metrics: list[GroupMetricName], layouts: list[Layout], count: int
) -> None:
    assert monthly_estimate(100, metrics, 2, 30, layouts).metrics == count


def test_an_estimate_is_printed_as_sentences() -> None:
    assert monthly_estimate(1000, LAG, 1, 30, DIMENSIONS).sentences() == (
        "1,001 metrics of 1,000 consumer groups: at most 300.30 USD",
        "175,200 calls of PutMetricData: at most 1.75 USD",
        "together at most 302.05 USD a month (list prices of us-east-1, November 2026, without the free tier)",
    )


def test_the_table_of_the_docs_has_the_estimates() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "cloudwatch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d,]+) \| (\d) \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for groups, metrics, *told in rows:
        made = monthly_estimate(int(groups.replace(",", "")), [*GroupMetricName][: int(metrics)], 1, 30, DIMENSIONS)
        assert told == [f"{usd:,.2f} USD" for usd in (made.metrics_usd, made.calls_usd, made.total_usd)]


@given(st.integers(0, 2_000_000), st.integers(0, 100), st.integers(1, 3600))
def test_another_group_never_costs_less(groups: int, clusters: int, interval_s: int) -> None:
    one = monthly_estimate(groups, LAG, clusters, interval_s, DIMENSIONS)
    more = monthly_estimate(groups + 1, LAG, clusters, interval_s, DIMENSIONS)
    assert 0 <= one.total_usd < more.total_usd


def test_the_bill_counts_the_included_groups_and_names_the_number_left_out() -> None:
    groups = [GroupKey(cluster, f"g{number}") for cluster in ("a", "b") for number in range(3)]
    options = Options(
        max_groups=4, exclude=re.compile("g0"), metrics=(GroupMetricName.LAG, GroupMetricName.LAG_SECONDS)
    )
    assert bill(groups, options)[0] == "10 metrics of 4 consumer groups: at most 3.00 USD"
    assert bill(groups, replace(options, max_groups=3))[-1] == (
        "1 group beyond KARROT_CLOUDWATCH_MAX_GROUPS get no metrics"
    )


def test_the_bill_of_an_empty_log_is_the_price_of_one_group() -> None:
    assert bill([], Options()) == ("no group is in the log yet; each metric of a group costs up to 0.30 USD a month",)
