"""Lists the samples that Karrot exports with their labels."""

from karrot import telemetry

EXPORTED_METRICS = {
    name: {*metric.labels, *extra}
    for metric in telemetry.METRICS
    for name, extra in (
        [(f"{metric.name}_bucket", {"le"}), (f"{metric.name}_count", set()), (f"{metric.name}_sum", set())]
        if isinstance(metric, telemetry.Histogram)
        else [(metric.name, set())]
    )
}
"""The labels of every sample, by its name."""
