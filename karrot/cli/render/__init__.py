"""The commands that print configuration for others."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid
from karrot.cli.render.scaling_options import scaling, scaling_options
from karrot.distribution import DOCS_URL

__all__ = ["render"]


@click.command("ecs-autoscaling")
@scaling_options
@click.option(
    "--format",
    "output",
    type=click.Choice(["cloudformation", "terraform"]),
    default="cloudformation",
    show_default=True,
    help="What to print.",
)
def ecs_autoscaling(output: str, **given: Any) -> None:
    """Print policies and alarms that scale a service on its consumer group's lag.

    target-tracking holds the lag at a target: --max-lag-seconds, or --target-lag-per-task.

    step adds while the lag is high and takes one away when it has long been low: --max-lag-seconds, or --max-lag,
    which works from 0 tasks too.

    from-zero starts one when something is unread and nothing runs; after that it is target-tracking.

    What Karrot and AWS have to be set to stands in the comments of what is printed.
    """
    from karrot.render.autoscaling import autoscaling

    click.echo(autoscaling(scaling(**given), output), nl=False)


@click.command("ecs-service")
@click.option("--ecs-cluster", metavar="NAME", required=True, help="The ECS cluster to run on.")
@click.option("--image", required=True, help="Karrot's image.")
@click.option("--burrow-cluster", metavar="NAME", required=True, help="The Kafka cluster as Burrow calls it.")
@click.option("--burrow-image", metavar="IMAGE", help="Burrow's image, to run Burrow too.")
@click.option("--kafka", metavar="HOST:PORT,...", help="Kafka's brokers, for Burrow.")
@click.option("--zookeeper", metavar="HOST:PORT,...", help="ZooKeeper, for Burrow: its notifiers need one.")
@click.option("--metrics", default="Lag", show_default=True, help="KARROT_CLOUDWATCH_METRICS.")
@click.option("--namespace", default="Karrot", show_default=True, help="KARROT_CLOUDWATCH_NAMESPACE.")
@click.option(
    "--dns-namespace", default="monitoring.internal", show_default=True, help="The private domain of Karrot's name."
)
def ecs_service(**given: Any) -> None:
    """Print a CloudFormation template that runs Karrot, and Burrow if asked, on ECS with Fargate."""
    from karrot.render.service import Service, service

    click.echo(service(valid(partial(Service, **given))), nl=False)


@click.command("cloudwatch-dashboard")
@click.option("--region", required=True, help="The region of the metrics.")
@click.option("--ecs-cluster", metavar="NAME", help="The ECS cluster of the service.")
@click.option("--service", metavar="NAME", help="The ECS service.")
@click.option("--asg-name", metavar="NAME", help="The Auto Scaling group, in place of a service.")
@click.option("--burrow-cluster", metavar="NAME", required=True, help="The Kafka cluster as Burrow calls it.")
@click.option("--group", metavar="NAME", required=True, help="The consumer group.")
@click.option("--max-lag-seconds", type=float, help="Drawn as a line.")
@click.option("--max-tasks", type=int, help="Drawn as a line.")
@click.option("--namespace", default="Karrot", show_default=True, help="KARROT_CLOUDWATCH_NAMESPACE.")
def cloudwatch_dashboard(**given: Any) -> None:
    """Print a dashboard that shows a group's lag against the tasks that run, for aws cloudwatch put-dashboard."""
    from karrot.render.dashboard import Dashboard, dashboard

    click.echo(dashboard(valid(partial(Dashboard, **given))), nl=False)


@click.command("alert-rules")
@click.option("--set", "changed", metavar="NAME=VALUE", multiple=True, help="A threshold; docs/alerts.md lists them.")
@click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address for people: each alert then links to its page there.",
)
@click.option(
    "--runbook-url",
    metavar="URL",
    help="Where the runbooks are.  [default: /runbooks at --external-url, where Karrot serves them; else on GitHub]",
)
def alert_rules(changed: tuple[str, ...], external_url: str | None, runbook_url: str | None) -> None:
    """Print alerts for Prometheus: on consumer groups, on Burrow and on Karrot itself."""
    from karrot.render.rules import Rules, alert_rules

    pairs = dict(text.partition("=")[::2] for text in changed)
    runbooks = runbook_url or (None if external_url else f"{DOCS_URL}/runbooks")
    rules = valid(lambda: Rules(changed=pairs, external_url=external_url, runbook_url=runbooks))
    click.echo(alert_rules(rules), nl=False)


@click.command("recording-rules")
def recording_rules() -> None:
    """Print recording rules for Prometheus: one series per group, growth, share of time in OK, totals."""
    from karrot.render.rules import recording_rules

    click.echo(recording_rules(), nl=False)


@click.command("bridging-rules")
@click.argument(
    "tool",
    type=click.Choice(["burrow", "burrow-exporter", "kafka-exporter", "kafka-lag-exporter", "klag", "kminion"]),
)
@click.option("--as-karrot", is_flag=True, help="The other way round: the tool's series under Karrot's names.")
def bridging_rules(tool: str, *, as_karrot: bool) -> None:
    """Print recording rules that make Karrot's series under another tool's names.

    What was built on that tool, dashboards and alerts, goes on with Karrot. docs/migrating.md says what is bridged.
    """
    from karrot.render.bridges import bridging_rules

    click.echo(bridging_rules(tool, as_karrot=as_karrot), nl=False)


@click.command("dashboard")
@click.argument("board", type=click.Choice(["overview", "group", "itself"]))
@click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address for people: the board then links to its page there.",
)
def dashboard(board: str, external_url: str | None) -> None:
    """Print a Grafana dashboard: of all groups, of one group, or of Karrot itself."""
    from karrot.render.grafana import dashboard

    click.echo(valid(partial(dashboard, board, external_url)), nl=False)


@click.command()
@click.option("--location", metavar="s3://BUCKET/PREFIX", required=True, help="Where the pipeline has its tables.")
@click.option("--database", default="karrot", show_default=True, help="The database to create them in.")
@click.option("--days", type=int, default=400, show_default=True, help="How far back a query looks that names no day.")
def athena(**given: Any) -> None:
    """Print the DDL of the pipeline's tables for Amazon Athena, with their days projected."""
    from karrot.render.athena import Athena, athena

    click.echo(athena(valid(partial(Athena, **given))), nl=False)


@click.command()
@click.option(
    "--bootstrap-servers", "bootstrap", metavar="HOST:PORT,...", required=True, help="Kafka, as Druid sees it."
)
@click.option("--group", metavar="NAME", required=True, help="The consumer group that is asked about.")
@click.option("--topic", default="consumer_offsets_json", show_default=True, help="The --json-topic of offsets.")
@click.option("--datasource", default="consumer_offsets", show_default=True, help="What Druid calls it.")
@click.option("--interval", default="2017-01-01/2100-01-01", show_default=True, help="The time that is asked about.")
@click.option(
    "--print",
    "part",
    type=click.Choice(["all", "ingestion", "query"]),
    default="all",
    show_default=True,
    help="Which of the two.",
)
def druid(part: str, **given: Any) -> None:
    """Print Druid's ingestion spec for the JSON topic of offsets, and a query: offsets by minute, newest first.

    Two JSON documents, one after the other; --print chooses one. karrot history timeseries --metric offset answers
    the same without a Druid.
    """
    from karrot.render import druid as rendered

    asked = valid(partial(rendered.Druid, **given))
    texts = {"ingestion": rendered.ingestion, "query": rendered.query}
    for name, text in texts.items():
        if part in (name, "all"):
            click.echo(text(asked), nl=False)


_RENDERED = [
    ecs_autoscaling,
    ecs_service,
    cloudwatch_dashboard,
    alert_rules,
    recording_rules,
    bridging_rules,
    dashboard,
    athena,
    druid,
]


@click.group(commands=_RENDERED)
def render() -> None:
    """Print configuration for other programs."""
