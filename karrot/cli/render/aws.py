"""``karrot render``: prints scaling policies, an ECS service and a dashboard for Amazon Web Services."""

from functools import partial
from typing import Any

import click

from karrot.cli.errors import valid

cluster_option = partial(
    click.option,
    "--cluster",
    "burrow_cluster",
    metavar="NAME",
    help="Name of the Kafka cluster in Burrow.",
)

format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["cloudformation", "terraform"]),
    default="cloudformation",
    show_default=True,
    help="Format of the output.",
)


@click.command("ecs-autoscaling", short_help="Print policies and alarms that scale a service on its lag.")
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
    show_default=True,
    help="Scale an ECS service or an EC2 Auto Scaling group.",
)
@click.option("--ecs-cluster", metavar="NAME", help="With --target ecs: ECS cluster of the service.")
@click.option("--service", metavar="NAME", help="With --target ecs: ECS service.")
@click.option("--asg-name", metavar="NAME", help="With --target asg: Auto Scaling group.")
@cluster_option(required=True)
@click.option("--group", metavar="NAME", required=True, help="Consumer group.")
@click.option("--max-lag-seconds", type=float, help="Largest allowed age of the oldest unread message.")
@click.option(
    "--target-lag-per-task",
    type=float,
    help="Target lag for each task, in messages. CloudWatch metric math calculates the lag for each task.",
)
@click.option("--max-lag", type=float, help="With --recipe step: largest allowed total lag, in messages.")
@click.option(
    "--wake-up-lag",
    type=float,
    default=1,
    show_default=True,
    help="With --recipe from-zero: lag in messages that starts the first task.",
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
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of --schedule, such as Europe/Paris.")
@click.option("--scale-out-cooldown", type=int, help="Seconds to wait after a scale-out.", show_default="60; asg: 300")
@click.option("--scale-in-cooldown", type=int, help="Seconds to wait after a scale-in.", show_default="300")
@click.option("--high-resolution", is_flag=True, help="With --recipe step: alarms with a period of 10 seconds.")
@click.option(
    "--container-insights",
    is_flag=True,
    help="With --target ecs: count the tasks by RunningTaskCount of Container Insights, not by samples of the CPU "
    "utilization.",
)
@click.option(
    "--namespace",
    default="Karrot",
    show_default=True,
    help="The value of KARROT_CLOUDWATCH_NAMESPACE that the Karrot service uses.",
)
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


@click.command("ecs-service", short_help="Print a template that runs Karrot on ECS.")
@click.option("--ecs-cluster", metavar="NAME", required=True, help="ECS cluster to run on.")
@click.option("--image", required=True, help="Container image of Karrot.")
@cluster_option(
    required=True,
    multiple=True,
    help="Name of the Kafka cluster in Burrow. Repeat it if your Burrow reports on several Kafka clusters.",
)
@click.option("--burrow-image", metavar="IMAGE", help="Container image of Burrow, to run Burrow too.")
@click.option("--watch", is_flag=True, help="Poll Kafka, without Burrow. --cluster then names the cluster.")
@click.option(
    "--bootstrap-servers",
    "kafka",
    metavar="HOST:PORT,...",
    help="With --burrow-image or --watch: Kafka brokers.",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT,...", help="With --burrow-image: ZooKeeper, which Burrow's notifiers need."
)
@click.option("--msk-cluster-arn", metavar="ARN", help="With --watch: MSK cluster, to authenticate with IAM.")
@click.option(
    "--kafka-properties-secret", metavar="ARN", help="With --watch: secret with Kafka's client properties (TLS, SASL)."
)
@click.option(
    "--burrow-password-secret", metavar="ARN", help='Secret with the password of Burrow\'s user "burrow" for Karrot.'
)
@click.option("--api-token-secret", metavar="ARN", help="Secret with the token of the pages and the API.")
@click.option(
    "--event-log",
    metavar="postgresql://USER@HOST/DATABASE",
    help="PostgreSQL for the event log, to run two tasks of Karrot. The default is SQLite and one task.",
)
@click.option(
    "--database-password-secret",
    metavar="ARN",
    help="With --event-log: secret with the password of the database's user.",
)
@click.option(
    "--database-ca-secret",
    metavar="ARN",
    help="With sslmode=verify-full in --event-log: secret with the certificate of the database's authority (PEM).",
)
@click.option("--rds-iam", is_flag=True, help="With --event-log: log in to RDS with tokens of IAM, without a password.")
@click.option(
    "--rds-resource-id",
    metavar="ID",
    help="With --rds-iam: resource id of the only database to allow, such as db-ABC123, or cluster-ABC123 for Aurora.",
)
@click.option("--secrets-kms-key", metavar="ARN", help="KMS key of the secrets, if it is your own.")
@click.option(
    "--archive",
    metavar="s3://BUCKET/PREFIX",
    callback=lambda _context, _option, text: text and text.replace("s3a://", "s3://", 1),
    help="Archive the events there, so that they outlive the task.",
)
@click.option("--archive-kms-key", metavar="ARN", help="KMS key of the bucket, if it is your own.")
@click.option("--metrics", default="Lag", show_default=True, help="The value of KARROT_CLOUDWATCH_METRICS for Karrot.")
@click.option(
    "--namespace", default="Karrot", show_default=True, help="The value of KARROT_CLOUDWATCH_NAMESPACE for Karrot."
)
@click.option(
    "--dns-namespace",
    metavar="DOMAIN",
    help="Private DNS domain for Karrot's name.  [default: karrot-CLUSTER.internal]",
)
@click.option("--dns-namespace-id", metavar="ID", help="Existing Cloud Map namespace with the name in --dns-namespace.")
@click.option(
    "--setting",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another setting of Karrot, such as KARROT_WATCH_INTERVAL=30s. Repeat it for more settings.",
)
@format_option
def ecs_service(output: str, **given: Any) -> None:
    """Print a template that runs Karrot on ECS with Fargate.

    With --burrow-image, the template also runs Burrow. With --watch, Karrot polls Kafka itself, without Burrow.

    With --event-log, the template runs two tasks of Karrot, which share an event log in PostgreSQL.

    Secrets are ARNs in Secrets Manager or Parameter Store. The containers get their values when they start, and the
    template contains only the ARNs.
    """
    from karrot.render.karrot_on_ecs import EcsService, service

    click.echo(service(valid(partial(EcsService, **given)), output), nl=False)


@click.command("cloudwatch-dashboard", short_help="Print a CloudWatch dashboard of lag and tasks.")
@click.option("--region", required=True, help="AWS region of the metrics.")
@click.option("--ecs-cluster", metavar="NAME", help="ECS cluster of the service.")
@click.option("--service", metavar="NAME", help="ECS service.")
@click.option("--asg-name", metavar="NAME", help="Auto Scaling group, instead of an ECS service.")
@cluster_option(required=True)
@click.option("--group", metavar="NAME", required=True, help="Consumer group.")
@click.option("--max-lag-seconds", type=float, help="Draw this lag in seconds as a line.")
@click.option("--max-tasks", type=int, help="Draw this number of tasks as a line.")
@click.option(
    "--container-insights",
    is_flag=True,
    help="Count the tasks by RunningTaskCount of Container Insights, not by samples of the CPU utilization.",
)
@click.option(
    "--namespace",
    default="Karrot",
    show_default=True,
    help="The value of KARROT_CLOUDWATCH_NAMESPACE that the Karrot service uses.",
)
def cloudwatch_dashboard(**given: Any) -> None:
    """Print a dashboard with a group's lag and the running tasks, as input of aws cloudwatch put-dashboard."""
    from karrot.render import dashboards

    click.echo(dashboards.cloudwatch_dashboard(valid(partial(dashboards.Dashboard, **given))), nl=False)
