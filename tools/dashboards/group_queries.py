"""Defines what the dashboards share: the variables that select a group, links to a group, and queries by group."""

from tools.dashboards.panels import Json, Query, label_values

GROUPS = 'cluster=~"$cluster", consumer=~"$consumer"'
GROUP = 'cluster="$cluster", consumer="$consumer"'
LAG_LIMIT_SECONDS = 300
"""The default of ``lagSeconds`` of the alerts."""

# A group without a verdict can still have a lag from another tool, by bridging rules.
_KNOWN = '{__name__=~"karrot_consumer_last_event_timestamp_seconds|karrot_consumer_lag"'


def per_group(metric: str, more: str = "") -> str:
    """Return a query for the metric of each selected group. Each group has one series, even if it is scraped twice."""
    return f"max by (cluster, consumer) (karrot_consumer_{metric}{{{GROUPS}{more}}})"


def by_group(metric: str, more: str = "") -> str:
    """Return a query for the metric of the dashboard's group, like `per_group`."""
    return f"max by (cluster, consumer) (karrot_consumer_{metric}{{{GROUP}{more}}})"


def of_those(expr: str, worst: str) -> Query:
    """Return a query for ``expr``, only of the groups in ``worst``. The series are named after the groups."""
    return Query(f"{expr}\nand on (cluster, consumer)\n{worst}", "{{consumer}} ({{cluster}})")


def group_link(cluster: str, consumer: str) -> Json:
    """Return a link to the dashboard of one group. The arguments are the Grafana variables of its cluster and name."""
    chosen = f"var-cluster=${{{cluster}:percentencode}}&var-consumer=${{{consumer}:percentencode}}"
    url = f"/d/karrot-group?${{datasource:queryparam}}&{chosen}&${{__url_time_range}}"
    return {"title": "This group", "url": url, "targetBlank": False}


def group_variables(*, several: bool) -> list[Json]:
    """Return the variables for the cluster and the group. With ``several``, users can select several values."""
    on = f'{_KNOWN}, cluster{"=~" if several else "="}"$cluster"}}'
    return [
        label_values("cluster", "Cluster", f"label_values({_KNOWN}}}, cluster)", several=several),
        label_values("consumer", "Consumer group", f"label_values({on}, consumer)", several=several),
    ]
