"""Defines what the dashboards share: how a group is selected, linked to and named."""

from tools.dashboards.panels import Json, Query, label_values

GROUPS = 'cluster=~"$cluster", consumer=~"$consumer"'
GROUP = 'cluster="$cluster", consumer="$consumer"'
LAG_LIMIT_SECONDS = 300
"""The default of ``lagSeconds`` of the alerts."""

# A group without a verdict may still have a lag, from a bridged tool.
_KNOWN = '{__name__=~"karrot_consumer_last_event_timestamp_seconds|karrot_consumer_lag"'


def per_group(metric: str, more: str = "") -> str:
    """Return a query for the metric of each selected group: one series per group for any number of scrapes."""
    return f"max by (cluster, consumer) (karrot_consumer_{metric}{{{GROUPS}{more}}})"


def by_group(metric: str, more: str = "") -> str:
    """Return a query for the metric of the dashboard's group, like `per_group`."""
    return f"max by (cluster, consumer) (karrot_consumer_{metric}{{{GROUP}{more}}})"


def of_those(expr: str, worst: str) -> Query:
    """Return a query for an expression of only the groups that are at the top by another one, each by its name."""
    return Query(f"{expr}\nand on (cluster, consumer)\n{worst}", "{{consumer}} ({{cluster}})")


def group_link(cluster: str, consumer: str) -> Json:
    """Return a link to the dashboard of one group; the arguments are Grafana's variables for its cluster and name."""
    chosen = f"var-cluster=${{{cluster}:percentencode}}&var-consumer=${{{consumer}:percentencode}}"
    url = f"/d/karrot-group?${{datasource:queryparam}}&{chosen}&${{__url_time_range}}"
    return {"title": "This group", "url": url, "targetBlank": False}


def group_variables(*, several: bool) -> list[Json]:
    """Return the variables for a cluster and its groups: any number of groups, or one."""
    on = f'{_KNOWN}, cluster{"=~" if several else "="}"$cluster"}}'
    return [
        label_values("cluster", "Cluster", f"label_values({_KNOWN}}}, cluster)", several=several),
        label_values("consumer", "Consumer group", f"label_values({on}, consumer)", several=several),
    ]
