"""Renders the three Grafana dashboards from their JSON files, and a CloudWatch dashboard of a consumer group."""

import json
from typing import Any

from karrot.render import validation
from karrot.render.cloudwatch_metric_names import heartbeat_of, lag_of, running_of, utilization_of
from karrot.render.jinja_templates import rendered, templates_dir
from karrot.settings import types

_PAGES = {
    "overview": "/",
    "group": "/group?cluster=${cluster:percentencode}&consumer=${consumer:percentencode}",
    "itself": "/reporters",
}
"""Maps a Grafana dashboard to Karrot's page on the same subject."""

BOARDS = tuple(_PAGES)


def grafana_dashboard(board: str, external_url: str | None = None) -> str:
    """Return a dashboard as JSON for Grafana's import or provisioning. The user chooses its Prometheus data source.

    With ``external_url``, the dashboard links to Karrot's page. Raises `ValueError` if ``external_url`` is not valid.
    """
    text = (templates_dir() / "grafana" / f"karrot-{board}.json").read_text(encoding="utf-8")
    if not external_url:
        return text
    types.checked(types.url, "--external-url", external_url)
    read: dict[str, Any] = json.loads(text)
    link = {
        "title": "Karrot's page",
        "type": "link",
        "icon": "external link",
        "tooltip": "",
        "url": external_url.rstrip("/") + _PAGES[board],
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
        "targetBlank": True,
    }
    read["links"].append(link)
    return json.dumps(read, indent=2, ensure_ascii=False) + "\n"


def cloudwatch_dashboard(
    *,
    region: str,
    burrow_cluster: str,
    group: str,
    ecs_cluster: str | None = None,
    service: str | None = None,
    asg_name: str | None = None,
    max_lag_seconds: float | None = None,
    max_tasks: int | None = None,
    container_insights: bool = False,
    namespace: str = "Karrot",
) -> str:
    """Return the JSON for ``aws cloudwatch put-dashboard --dashboard-body``.

    Metrics that Karrot does not send have no line in the graphs. Raises `ValueError` with one message per line for
    wrong options.
    """
    problems = [*validation.matching("--region", region, r"[a-z]{2}(-[a-z0-9]+)+", "a region, such as eu-west-1")]
    if asg_name is None:
        problems += [*validation.ecs_name("--ecs-cluster", ecs_cluster), *validation.ecs_name("--service", service)]
    else:
        problems += validation.asg_name(asg_name)
        if ecs_cluster is not None or service is not None:
            problems.append("give either --asg-name, or --ecs-cluster and --service")
        if container_insights:
            problems.append("--container-insights goes with --ecs-cluster and --service")
    for option, text in (("--cluster", burrow_cluster), ("--group", group)):
        problems += validation.free_text(option, text)
        if text in {".", "..."}:
            reason = "a dashboard reads this name as a reference to the line above; use another"
            problems.append(f"{option} is {text!r}: {reason}")
    if max_lag_seconds is not None:
        problems += validation.number("--max-lag-seconds", max_lag_seconds)
    problems += validation.whole("--max-tasks", max_tasks, 1, 10_000)
    problems += validation.of_kind(types.namespace, "--namespace", namespace)
    validation.refuse(problems)

    names = ("Lag", "ScalableLag", "LagSeconds", "ScalableLagSeconds")
    by_samples = asg_name is None and not container_insights
    return rendered(
        "cloudwatch/dashboard.json.j2",
        region=region,
        max_lag_seconds=max_lag_seconds,
        max_tasks=max_tasks,
        metrics={name: lag_of(namespace, burrow_cluster, group, name) for name in names},
        heartbeat=heartbeat_of(namespace, burrow_cluster),
        running=utilization_of(ecs_cluster, service) if by_samples else running_of(ecs_cluster, service, asg_name),
        running_statistic="SampleCount" if by_samples else "Maximum",
        unit="tasks" if asg_name is None else "instances",
    )
