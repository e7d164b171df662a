"""Lists the samples that Karrot exports with their labels."""

from karrot import telemetry
from karrot.pipeline.evaluate.metrics_and_health import EVALUATE_METRICS
from karrot.pipeline.run.step_loop import PIPELINE_METRICS

EXPORTED_METRICS = {
    name: {*metric.labels, *extra}
    for metric in telemetry.METRICS
    for name, extra in (
        [(f"{metric.name}_bucket", {"le"}), (f"{metric.name}_count", set()), (f"{metric.name}_sum", set())]
        if metric.edges
        else [(metric.name, set())]
    )
}
"""The labels of every sample, by its name."""

PIPELINES_METRICS = {metric.name: {*metric.labels} for metric in (*PIPELINE_METRICS, *EVALUATE_METRICS)}
"""The same for ``karrot pipeline run`` and ``evaluate``, which are other processes."""
