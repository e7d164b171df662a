"""``karrot render``: prints configuration for other programs, with one command for each."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from karrot.cli.errors import valid
from karrot.cli.options import option_set
from karrot.runbooks_and_remedies import DOCS_URL

_group_options = option_set(
    click.option(
        "--cluster", "burrow_cluster", metavar="NAME", required=True, help="Name of the Kafka cluster in Burrow."
    ),
    click.option("--group", metavar="NAME", required=True, help="Consumer group."),
)
_scaled_options = option_set(
    click.option("--ecs-cluster", metavar="NAME", help="ECS cluster of the service."),
    click.option("--service", metavar="NAME", help="ECS service."),
    click.option("--asg-name", metavar="NAME", help="Auto Scaling group, instead of an ECS service."),
)
_metric_options = option_set(
    click.option(
        "--container-insights",
        is_flag=True,
        help="Count the ECS tasks by RunningTaskCount of Container Insights, not by samples of the CPU utilization.",
    ),
    click.option(
        "--namespace", default="Karrot", help="The value of KARROT_CLOUDWATCH_NAMESPACE that the Karrot service uses."
    ),
)
_external_url_option = click.option(
    "--external-url",
    metavar="URL",
    envvar="KARROT_EXTERNAL_URL",
    show_envvar=True,
    help="Karrot's address in a browser. With it, the output links to Karrot's pages.",
)


@click.group()
def render() -> None:
    """Print configuration for other programs.

    The programs are Prometheus, Grafana and, on AWS, ECS, CloudWatch and Athena.
    """


@render.command("ecs-autoscaling", short_help="Print policies and alarms that scale a service on its lag.")
@click.option(
    "--recipe",
    type=click.Choice(["target-tracking", "step", "from-zero"]),
    required=True,
    help="The scaling recipe. The text above describes it.",
)
@click.option(
    "--target",
    type=click.Choice(["ecs", "asg"]),
    default="ecs",
    help="Scale an ECS service or an EC2 Auto Scaling group.",
)
@_scaled_options
@_group_options
@click.option("--max-lag-seconds", type=float, help="Largest allowed age of the oldest unread message.")
@click.option(
    "--target-lag-per-task",
    type=float,
    help="Target lag for each task, in messages. CloudWatch metric math calculates the lag for each task.",
)
@click.option("--max-lag", type=float, help="With --recipe step: largest allowed total lag, in messages.")
@click.option(
    "--wake-up-lag", type=float, default=1, help="With --recipe from-zero: lag in messages that starts the first task."
)
@click.option("--min-tasks", type=int, help="Smallest number of tasks.", show_default="1; from-zero: 0")
@click.option(
    "--max-tasks",
    type=int,
    required=True,
    help="Largest number of tasks. Do not give more than the number of partitions that have messages.",
)
@click.option(
    "--schedule",
    metavar="[DAYS ]HH:MM-HH:MM=TASKS",
    multiple=True,
    help="Keep at least this many tasks at these times, such as 01:55-04:00=8 or 'MON-FRI 22:00-02:00=8'. Repeat "
    "it for more times.",
)
@click.option("--timezone", default="UTC", help="Time zone of --schedule, such as Europe/Paris.")
@click.option("--scale-out-cooldown", type=int, help="Seconds to wait after a scale-out.", show_default="60; asg: 300")
@click.option("--scale-in-cooldown", type=int, help="Seconds to wait after a scale-in.", show_default="300")
@click.option("--high-resolution", is_flag=True, help="With --recipe step: alarms with a period of 10 seconds.")
@_metric_options
@click.option(
    "--sns-topic-arn",
    metavar="ARN",
    help="SNS topic that gets the alarms on status, missing lag, the largest number of tasks and the heartbeat. "
    "Without it, these alarms notify nobody.",
)
@click.option(
    "--shared/--no-shared",
    default=True,
    help="Also print the heartbeat alarm and the IAM policy. A Kafka cluster needs one of each.",
)
def ecs_autoscaling(**given: Any) -> None:
    """Print policies and alarms that scale a service on the lag of its consumer group.

    The recipe "target-tracking" keeps the lag at a target. It needs --max-lag-seconds or --target-lag-per-task.

    The recipe "step" adds tasks while the lag is high, and removes one task after the lag was low for a long time. It
    needs --max-lag-seconds or --max-lag. With --max-lag, the recipe "step" can also start from 0 tasks.

    The recipe "from-zero" starts one task if there are unread messages and no task runs. Then the recipe works like
    "target-tracking".

    The comments in the output describe the settings that Karrot and AWS need.
    """
    from karrot.render.ecs_autoscaling import autoscaling
    from karrot.render.scaling_recipe import Scaling

    click.echo(autoscaling(valid(partial(Scaling, **given))), nl=False)


@render.command("cloudwatch-dashboard", short_help="Print a CloudWatch dashboard of lag and tasks.")
@click.option("--region", required=True, help="AWS region of the metrics.")
@_scaled_options
@_group_options
@click.option("--max-lag-seconds", type=float, help="Draw this lag in seconds as a line.")
@click.option("--max-tasks", type=int, help="Draw this number of tasks as a line.")
@_metric_options
def cloudwatch_dashboard(**given: Any) -> None:
    """Print a dashboard with a group's lag and the running tasks, as input of aws cloudwatch put-dashboard."""
    from karrot.render import dashboards

    click.echo(valid(partial(dashboards.cloudwatch_dashboard, **given)), nl=False)


@render.command("alert-rules", short_help="Print alert rules for Prometheus.")
@click.option(
    "--set",
    "changed",
    metavar="NAME=VALUE",
    multiple=True,
    help="Change a threshold listed in docs/alerts.md. Repeatable.",
)
@_external_url_option
@click.option(
    "--runbook-url",
    metavar="URL",
    help="Address of the runbooks.  [default: /runbooks at --external-url, or GitHub without --external-url]",
)
@click.option(
    "--owners",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file as in KARROT_NOTIFY_CONFIG. Its teams in [owners] become the label team of the alerts on groups.",
)
def alert_rules(
    changed: tuple[str, ...], external_url: str | None, runbook_url: str | None, owners: Path | None
) -> None:
    """Print alert rules for Prometheus: for consumer groups, for Burrow and for Karrot itself."""
    from karrot.render.prometheus_rules import alert_rules
    from karrot.reporters.notify.routes import read_routes

    pairs = dict(text.partition("=")[::2] for text in changed)
    known = valid(partial(read_routes, owners, only_owners=True))[1] if owners else ()
    rules = partial(alert_rules, pairs, external_url=external_url, runbook_url=runbook_url, docs_url=DOCS_URL)
    click.echo(valid(partial(rules, owners=known)), nl=False)


@render.command("recording-rules")
def recording_rules() -> None:
    """Print recording rules for Prometheus.

    The rules record the lag of each group as a single series, the growth of the lag, the share of time in OK, and
    totals.
    """
    from karrot.render.prometheus_rules import recording_rules

    click.echo(recording_rules(), nl=False)


@render.command("dashboard", short_help="Print a Grafana dashboard.")
@click.argument("board", type=click.Choice(["overview", "group", "itself"]))
@_external_url_option
def dashboard(board: str, external_url: str | None) -> None:
    """Print a Grafana dashboard: for all groups, for one group, or for Karrot itself."""
    from karrot.render.dashboards import grafana_dashboard

    click.echo(valid(partial(grafana_dashboard, board, external_url)), nl=False)


@render.command(short_help="Print the DDL of the pipeline's tables for Amazon Athena.")
@click.option(
    "--tables", "location", metavar="s3://BUCKET/PREFIX", required=True, help="Address of the pipeline's tables."
)
@click.option("--database", default="karrot", help="Database for the tables.")
def athena(**given: Any) -> None:
    """Print the DDL of the pipeline's tables, which are Delta Lake tables, for Amazon Athena."""
    from karrot.render.athena import athena

    click.echo(valid(partial(athena, **given)), nl=False)
