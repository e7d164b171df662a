"""What a consumer group is called where its numbers go: the exact names, to be copied."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from karrot import telemetry
from karrot.render.cloudwatch_metrics import lag_of
from karrot.reporters.cloudwatch.naming import metric_name
from karrot.reporters.prometheus.labels import escaped, label_value

__all__ = ["CloudWatchNames", "MetricNameQuery", "queries"]

_SHOWN = (
    telemetry.CONSUMER_LAG,
    telemetry.CONSUMER_LAG_SECONDS,
    telemetry.CONSUMER_SCALABLE_LAG,
    telemetry.CONSUMER_STATUS_CODE,
)


class MetricNameQuery(NamedTuple):
    """A text to copy, and where it is understood."""

    where: str
    text: str


class CloudWatchNames(NamedTuple):
    """What decides on the names in CloudWatch: settings of its reporter."""

    namespace: str
    metrics: Sequence[str]
    layouts: Sequence[str]


def queries(cluster: str, consumer: str, cloudwatch: CloudWatchNames | None) -> list[MetricNameQuery]:
    """PromQL of the series one asks for first; the metrics of CloudWatch, as the source of its graphs has them."""
    labels = f'cluster="{_quoted(cluster)}",consumer="{_quoted(consumer)}"'
    found = [MetricNameQuery("PromQL", f"{metric.name}{{{labels}}}") for metric in _SHOWN]
    if cloudwatch is None:
        return found
    if "dimensions" in cloudwatch.layouts:
        named = (lag_of(cloudwatch.namespace, cluster, consumer, name) for name in cloudwatch.metrics)
        found += [_source(each.namespace, each.name, *sum(each.dimensions, ())) for each in named]
    if "legacy" in cloudwatch.layouts:
        found.append(_source(cloudwatch.namespace, metric_name(consumer).text))
    return found


def _quoted(name: str) -> str:
    """As PromQL has it between quotes; what cannot be seen is written as an escape, which it reads alike."""
    text = escaped(label_value(name))
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _source(*names: str) -> MetricNameQuery:
    return MetricNameQuery("CloudWatch", json.dumps(names))
