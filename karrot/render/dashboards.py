"""Renders dashboards: the three for Grafana from their JSON files, and one of a consumer group for CloudWatch."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
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
"""Karrot's page on the same subject as a dashboard."""

BOARDS = tuple(_PAGES)


def grafana_dashboard(board: str, external_url: str | None = None) -> str:
    """A dashboard as JSON for Grafana's import or provisioning. The user chooses its Prometheus data source.

    With ``external_url``, the dashboard links to Karrot's page. Raises `ValueError` if it is not a valid URL.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """The options of the CloudWatch dashboard. Raises `ValueError` with one message per line for wrong options."""

    region: str
    ecs_cluster: str | None = None
    service: str | None = None
    asg_name: str | None = None
    burrow_cluster: str
    group: str
    max_lag_seconds: float | None = None
    max_tasks: int | None = None
    container_insights: bool = False
    namespace: str = "Karrot"

    def __post_init__(self) -> None:
        validation.refuse(_problems(self))


def cloudwatch_dashboard(asked: Dashboard) -> str:
    """The JSON for ``aws cloudwatch put-dashboard --dashboard-body``.

    Karrot may send only some of the metrics. The others have no line in the graphs.
    """
    names = ("Lag", "ScalableLag", "LagSeconds", "ScalableLagSeconds")
    by_samples = asked.asg_name is None and not asked.container_insights
    return rendered(
        "cloudwatch/dashboard.json.j2",
        asked=asked,
        metrics={name: lag_of(asked.namespace, asked.burrow_cluster, asked.group, name) for name in names},
        heartbeat=heartbeat_of(asked.namespace, asked.burrow_cluster),
        running=utilization_of(asked.ecs_cluster, asked.service)
        if by_samples
        else running_of(asked.ecs_cluster, asked.service, asked.asg_name),
        running_statistic="SampleCount" if by_samples else "Maximum",
        unit="tasks" if asked.asg_name is None else "instances",
    )


def _problems(asked: Dashboard) -> Iterator[str]:
    yield from validation.matching("--region", asked.region, r"[a-z]{2}(-[a-z0-9]+)+", "a region, such as eu-west-1")
    if asked.asg_name is None:
        yield from validation.ecs_name("--ecs-cluster", asked.ecs_cluster)
        yield from validation.ecs_name("--service", asked.service)
    else:
        yield from validation.asg_name(asked.asg_name)
        if asked.ecs_cluster is not None or asked.service is not None:
            yield "give either --asg-name, or --ecs-cluster and --service"
        if asked.container_insights:
            yield "--container-insights goes with --ecs-cluster and --service"
    for option, text in (("--cluster", asked.burrow_cluster), ("--group", asked.group)):
        yield from validation.free_text(option, text)
        if text in {".", "..."}:
            yield f"{option} is {text!r}: a dashboard reads this name as a reference to the line above; use another"
    if asked.max_lag_seconds is not None:
        yield from validation.number("--max-lag-seconds", asked.max_lag_seconds)
    yield from validation.whole("--max-tasks", asked.max_tasks, 1, 10_000)
    yield from validation.of_kind(types.namespace, "--namespace", asked.namespace)
