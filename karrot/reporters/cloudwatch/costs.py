"""Estimates the monthly cost of the CloudWatch metrics.

The prices are the list prices of us-east-1 in US dollars, without the free tier and taxes. Prices in other Regions
differ by a few per cent.
"""

from collections.abc import Collection, Iterable
from math import ceil
from typing import NamedTuple

from karrot.event import GroupKey
from karrot.reporters.cloudwatch.datum_limits_and_batches import MAX_DATA
from karrot.reporters.cloudwatch.options import GroupMetricName, Layout, Options
from karrot.text import counted

PRICES_AS_OF = "November 2026"
HOURS_A_MONTH = 730

_METRIC_TIERS = ((10_000, 0.30), (240_000, 0.10), (750_000, 0.05), (None, 0.02))  # how many metrics at which price
_CALL = 0.01 / 1000


class Estimate(NamedTuple):
    """The metrics and calls of a month, and the cost of each in US dollars.

    The estimate is the maximum cost for the settings. AWS bills a metric only for the hours in which it has data, and a
    send with fewer values may need fewer calls.
    """

    groups: int
    metrics: int
    calls: int
    metrics_usd: float
    calls_usd: float

    @property
    def total_usd(self) -> float:
        """The sum of both costs."""
        return self.metrics_usd + self.calls_usd

    def sentences(self) -> tuple[str, ...]:
        """The estimate in sentences: one for each item on the bill, and one for the total."""
        metrics = f"{counted(self.metrics, 'metric')} of {counted(self.groups, 'consumer group')}"
        prices = f"list prices of us-east-1, {PRICES_AS_OF}, without the free tier"
        return (
            f"{metrics}: at most {_usd(self.metrics_usd)}",
            f"{counted(self.calls, 'call')} of PutMetricData: at most {_usd(self.calls_usd)}",
            f"together at most {_usd(self.total_usd)} a month ({prices})",
        )


def bill(groups: Iterable[GroupKey], options: Options) -> tuple[str, ...]:
    """The monthly cost of these groups with these options, and the number of groups beyond the limit, in sentences."""
    wanted = {key for key in groups if options.wants(key.consumer)}
    if not wanted:
        return (f"no group is in the log yet; each metric of a group costs up to {_usd(_METRIC_TIERS[0][1])} a month",)
    inside = min(len(wanted), options.max_groups)
    clusters = len({key.cluster for key in wanted})
    estimate = monthly_estimate(inside, options.metrics, clusters, options.interval_s, options.layouts)
    left_out = [f"{counted(len(wanted) - inside, 'group')} beyond KARROT_CLOUDWATCH_MAX_GROUPS get no metrics"]
    return (*estimate.sentences(), *(left_out if len(wanted) > inside else ()))


def monthly_estimate(
    groups: int,
    metrics: Collection[GroupMetricName],
    clusters: int,
    interval_s: int,
    layouts: Collection[Layout],
) -> Estimate:
    """The cost of a month for ``groups`` groups in ``clusters`` clusters, with an event per group in every interval.

    The heartbeat of each cluster is a metric too. The estimate assumes full calls, because a call has fewer data only
    if their names are very long.
    """
    count = 0
    if Layout.DIMENSIONS in layouts:
        count += groups * len(set(metrics)) + clusters
    if Layout.LEGACY in layouts:
        count += groups
    calls = ceil(count / MAX_DATA) * ceil(HOURS_A_MONTH * 3600 / interval_s)
    return Estimate(
        groups=groups,
        metrics=count,
        calls=calls,
        metrics_usd=_metrics_usd(count),
        calls_usd=calls * _CALL,
    )


def _metrics_usd(metrics: int) -> float:
    usd, rest = 0.0, metrics
    for many, price in _METRIC_TIERS:
        billed = rest if many is None else min(rest, many)
        usd += billed * price
        rest -= billed
    return usd


def _usd(amount: float) -> str:
    return f"{amount:,.2f} USD"
