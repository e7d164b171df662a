"""Makes names of CloudWatch metrics: of a consumer group, and of the ECS service or instances that run it."""

import json
from typing import NamedTuple

from karrot.reporters.cloudwatch.data import dimension_value, metric_name
from karrot.reporters.prometheus.group_metrics import MetricNameQuery
from karrot.settings.options import CloudWatch, Layout


class CloudWatchMetric(NamedTuple):
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]


def lag_of(namespace: str, burrow_cluster: str, group: str, name: str) -> CloudWatchMetric:
    """Return the metric ``name`` of a consumer group, as Karrot's cloudwatch reporter writes it."""
    cluster, consumer = dimension_value(burrow_cluster).text, dimension_value(group).text
    return CloudWatchMetric(namespace, name, (("Cluster", cluster), ("ConsumerGroup", consumer)))


def heartbeat_of(namespace: str, burrow_cluster: str) -> CloudWatchMetric:
    """Return a cluster's heartbeat metric, with data while Burrow reports on the cluster and Karrot publishes."""
    return CloudWatchMetric(namespace, "Heartbeat", (("Cluster", dimension_value(burrow_cluster).text),))


def running_of(ecs_cluster: str | None, service: str | None, asg_name: str | None) -> CloudWatchMetric:
    """Return the metric that counts an ECS service's running tasks or an Auto Scaling group's in-service instances."""
    if asg_name is not None:
        return CloudWatchMetric("AWS/AutoScaling", "GroupInServiceInstances", (("AutoScalingGroupName", asg_name),))
    return utilization_of(ecs_cluster, service)._replace(namespace="ECS/ContainerInsights", name="RunningTaskCount")


def utilization_of(ecs_cluster: str | None, service: str | None) -> CloudWatchMetric:
    """Return a metric with data whenever a task of the ECS service runs, even without Container Insights."""
    dimensions = (("ClusterName", str(ecs_cluster)), ("ServiceName", str(service)))
    return CloudWatchMetric("AWS/ECS", "CPUUtilization", dimensions)


def cloudwatch_queries(cluster: str, consumer: str, cloudwatch: CloudWatch) -> list[MetricNameQuery]:
    """Return a consumer group's CloudWatch metrics as JSON for the Source tab of a graph in the AWS console."""
    found: list[tuple[str, ...]] = []
    if Layout.DIMENSIONS in cloudwatch.layouts:
        named = (lag_of(cloudwatch.namespace, cluster, consumer, name) for name in cloudwatch.metrics)
        found += [(each.namespace, each.name, *sum(each.dimensions, ())) for each in named]
    if Layout.LEGACY in cloudwatch.layouts:
        found.append((cloudwatch.namespace, metric_name(consumer).text))
    return [MetricNameQuery("CloudWatch", json.dumps(names)) for names in found]
