"""The metrics that recipes and dashboards read, by the very names under which they are published."""

from typing import NamedTuple

from karrot.reporters.cloudwatch.naming import dimension_value

__all__ = ["CloudWatchMetric", "heartbeat_of", "lag_of", "running_of", "utilization_of"]


class CloudWatchMetric(NamedTuple):
    """What names a metric of CloudWatch."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]


def lag_of(namespace: str, burrow_cluster: str, group: str, name: str) -> CloudWatchMetric:
    """A metric of a consumer group, named as Karrot's reporter names it."""
    cluster, consumer = dimension_value(burrow_cluster).text, dimension_value(group).text
    return CloudWatchMetric(namespace, name, (("Cluster", cluster), ("ConsumerGroup", consumer)))


def heartbeat_of(namespace: str, burrow_cluster: str) -> CloudWatchMetric:
    """The metric that is there while Burrow reports on a cluster and Karrot publishes it."""
    return CloudWatchMetric(namespace, "Heartbeat", (("Cluster", dimension_value(burrow_cluster).text),))


def running_of(ecs_cluster: str | None, service: str | None, asg_name: str | None) -> CloudWatchMetric:
    """The metric that counts the running tasks of a service, or the instances in service of a group."""
    if asg_name is not None:
        return CloudWatchMetric("AWS/AutoScaling", "GroupInServiceInstances", (("AutoScalingGroupName", asg_name),))
    return CloudWatchMetric("ECS/ContainerInsights", "RunningTaskCount", _service(ecs_cluster, service))


def utilization_of(ecs_cluster: str | None, service: str | None) -> CloudWatchMetric:
    """A metric that every ECS service has in each minute in which a task runs, also without Container Insights."""
    return CloudWatchMetric("AWS/ECS", "CPUUtilization", _service(ecs_cluster, service))


def _service(ecs_cluster: str | None, service: str | None) -> tuple[tuple[str, str], ...]:
    return (("ClusterName", str(ecs_cluster)), ("ServiceName", str(service)))
