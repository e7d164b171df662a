"""Names the metrics of a consumer group, and of what reads it, exactly as CloudWatch has them."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from karrot.reporters.cloudwatch.name_encoding import dimension_value, metric_name
from karrot.reporters.prometheus.group_metrics import MetricNameQuery


class CloudWatchMetric(NamedTuple):
    """What names a metric of CloudWatch."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]


class CloudWatchNames(NamedTuple):
    """What decides on the names in CloudWatch: settings of its reporter."""

    namespace: str
    metrics: Sequence[str]
    layouts: Sequence[str]


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


def cloudwatch_queries(cluster: str, consumer: str, cloudwatch: CloudWatchNames) -> list[MetricNameQuery]:
    """The metrics of a consumer group in CloudWatch, as the source of its graphs has them."""
    found: list[MetricNameQuery] = []
    if "dimensions" in cloudwatch.layouts:
        named = (lag_of(cloudwatch.namespace, cluster, consumer, name) for name in cloudwatch.metrics)
        found += [_source(each.namespace, each.name, *sum(each.dimensions, ())) for each in named]
    if "legacy" in cloudwatch.layouts:
        found.append(_source(cloudwatch.namespace, metric_name(consumer).text))
    return found


def _source(*names: str) -> MetricNameQuery:
    return MetricNameQuery("CloudWatch", json.dumps(names))


def _service(ecs_cluster: str | None, service: str | None) -> tuple[tuple[str, str], ...]:
    return (("ClusterName", str(ecs_cluster)), ("ServiceName", str(service)))
