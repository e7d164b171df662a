"""Makes the queries for Karrot's own metrics, over every selected Karrot.

A Karrot is a job of Prometheus. Its replicas share the event log, so each of them exports the same values from it. A
query takes the largest value of the replicas, and adds nothing twice.
"""

from tools.dashboards.panels import Query

SELF = 'job=~"$job", instance=~"$instance"'


def each_one(metric: str, *labels: str) -> str:
    """Return a query for the metric, with a series for every selected Karrot. Karrots are not added together."""
    return f"max by ({', '.join(('job', *labels))}) (karrot_{metric}{{{SELF}}})"


def per_second(metric: str, *labels: str) -> Query:
    """Return a query for the rate of a counter."""
    return _counted("rate", metric, labels, "$__rate_interval")


def in_each_step(metric: str, *labels: str, legend: str = "") -> Query:
    """Return a query for a counter's growth within each step. ``legend`` replaces the names from the labels."""
    counted = _counted("increase", metric, labels, "$__interval")
    return counted._replace(legend=legend) if legend else counted


def _counted(function: str, metric: str, labels: tuple[str, ...], window: str) -> Query:
    by = ", ".join(("job", *labels))
    legend = " ".join(f"{{{{{label}}}}}" for label in (*labels, "job"))
    return Query(f"max by ({by}) ({function}(karrot_{metric}{{{SELF}}}[{window}]))", legend)


def of_those_counted(query: Query, metric: str, label: str) -> Query:
    """Return the query without the series that did not change in the shown time, because most codes never occur."""
    moved = f"max by (job, {label}) (increase(karrot_{metric}{{{SELF}}}[$__range] @ end())) > 0"
    return query._replace(expr=f"{query.expr}\nand on (job, {label})\n{moved}")


def percentile(share: float) -> Query:
    """Return a query for the time within which this share of the events was handled."""
    per_bound = f"max by (job, le) (rate(karrot_event_handling_seconds_bucket{{{SELF}}}[$__rate_interval]))"
    return Query(f"histogram_quantile({share}, {per_bound})", f"p{share * 100:g} {{{{job}}}}")
