"""The metrics that recipes and dashboards read, by the very names under which they are published."""

from typing import NamedTuple

from karrot.reporters.cloudwatch.naming import dimension_value

__all__ = ["Metric", "heartbeat_of", "lag_of", "running_of", "utilization_of"]


class Metric(NamedTuple):
    """What names a metric of CloudWatch."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]


def lag_of(namespace: str, burrow_cluster: str, group: str, name: str) -> Metric:
    """A metric of a consumer group, named as Karrot's reporter names it."""
    cluster, consumer = dimension_value(burrow_cluster).text, dimension_value(group).text
    return Metric(namespace, name, (("Cluster", cluster), ("ConsumerGroup", consumer)))


def heartbeat_of(namespace: str, burrow_cluster: str) -> Metric:
    """The metric that is there while Burrow reports on a cluster and Karrot publishes it."""
    return Metric(namespace, "Heartbeat", (("Cluster", dimension_value(burrow_cluster).text),))


def running_of(ecs_cluster: str | None, service: str | None, asg_name: str | None) -> Metric:
    """The metric that counts the running tasks of a service, or the instances in service of a group."""
    if asg_name is not None:
        return Metric("AWS/AutoScaling", "GroupInServiceInstances", (("AutoScalingGroupName", asg_name),))
    return Metric("ECS/ContainerInsights", "RunningTaskCount", _service(ecs_cluster, service))


def utilization_of(ecs_cluster: str | None, service: str | None) -> Metric:
    """A metric that every ECS service has in each minute in which a task runs, also without Container Insights."""
    return Metric("AWS/ECS", "CPUUtilization", _service(ecs_cluster, service))


def _service(ecs_cluster: str | None, service: str | None) -> tuple[tuple[str, str], ...]:
    return (("ClusterName", str(ecs_cluster)), ("ServiceName", str(service)))
