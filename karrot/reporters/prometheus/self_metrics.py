"""Makes the metrics about Karrot itself: counters, log, reporters, and the time of each cluster's last event."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import Sample

from karrot import __version__, telemetry
from karrot.eventlog.base import Counter, Events, Groups, Log, ReporterState, backlog
from karrot.reporters.prometheus.metric_family import ListedFamily, label_value, sample
from karrot.telemetry import Histogram, Metric

Counts = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]


def one(metric: Metric, value: float) -> ListedFamily:
    """A family with one sample that has no labels."""
    return ListedFamily(metric, [sample(metric, (), value)])


def always(log: Events, *, readable: bool = True) -> Iterator[ListedFamily]:
    """The families that are exported even if the log cannot be read."""
    build = sample(telemetry.BUILD_INFO, (__version__, platform.python_version()), 1)
    yield ListedFamily(telemetry.BUILD_INFO, [build])
    yield one(telemetry.LOG_WRITABLE, int(readable and log.writable() is None))


def log_families(log: Log) -> Iterator[ListedFamily]:
    """The families for the size of the log."""
    size = log.size()
    yield one(telemetry.LOG_EVENTS, size.events)
    yield one(telemetry.LOG_SIZE_BYTES, size.bytes)
    yield one(telemetry.LOG_WAL_BYTES, size.wal_bytes)


def heard_family(log: Groups, expected: Iterable[str]) -> ListedFamily:
    """The time of each cluster's last webhook. Burrow writes cluster names in lower case, but the setting may not."""
    heard: dict[str, int] = {}
    for cluster, at_ms in log.heard().items():
        heard[label_value(cluster)] = max(at_ms, heard.get(label_value(cluster), 0))
    known = {cluster.casefold() for cluster in heard}
    silent = {cluster: 0 for cluster in expected if cluster.casefold() not in known}
    return ListedFamily(
        telemetry.LAST_EVENT,
        (sample(telemetry.LAST_EVENT, (cluster,), at_ms / 1000) for cluster, at_ms in {**heard, **silent}.items()),
    )


def counter_families(counters: Iterable[Counter], reporters: Sequence[str]) -> Iterator[ListedFamily]:
    """Every declared counter and histogram of the log. Counters with an undeclared name or label are left out.

    A counter that was never incremented is 0 if its labels are known. So Prometheus sees the first increment.
    """
    counts: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for name, labels, value in counters:
        # A log may store 1.0 or 1. Both must give the same line.
        counts.setdefault(name, {})[tuple(sorted(labels))] = int(value) if value == int(value) else value
    for metric in telemetry.METRICS:
        if isinstance(metric, Histogram):
            yield ListedFamily(metric, _histogram(metric, counts))
        elif metric.kind == "counter" and "consumer" not in metric.labels:
            yield ListedFamily(metric, _counter(metric, counts, reporters))


def reporter_families(log: Events, states: Iterable[ReporterState]) -> Iterator[ListedFamily]:
    """The backlog of each of these reporters. They get events by cursor."""
    size = log.size()
    backlogs = [(state.name, *backlog(log, state, size)) for state in states]
    events, age = telemetry.REPORTER_BACKLOG_EVENTS, telemetry.REPORTER_BACKLOG_AGE
    yield ListedFamily(events, (sample(events, (name,), waiting) for name, waiting, _ in backlogs))
    yield ListedFamily(age, (sample(age, (name,), seconds) for name, _, seconds in backlogs if seconds is not None))


def _counter(metric: Metric, counts: Counts, reporters: Sequence[str]) -> Iterator[Sample]:
    zeros = dict.fromkeys(_known(metric, reporters), 0)
    for labels, value in {**zeros, **counts.get(metric.name, {})}.items():
        if {name for name, _ in labels} == set(metric.labels):
            yield Sample(metric.name, dict(labels), value)


def _known(metric: Metric, reporters: Sequence[str]) -> list[tuple[tuple[str, str], ...]]:
    match metric.labels:
        case ():
            return [()]
        case ("reporter",):
            return [(("reporter", name),) for name in reporters]
        case _:
            return [((metric.labels[0], value),) for value in metric.known]


def _histogram(metric: Histogram, counts: Counts) -> Iterator[Sample]:
    buckets = counts.get(f"{metric.name}_bucket", {})
    total: float = 0
    for edge in metric.edges:
        total += buckets.get((("le", edge),), 0)
        yield Sample(f"{metric.name}_bucket", {"le": edge}, total)
    yield Sample(f"{metric.name}_count", {}, total)
    yield Sample(f"{metric.name}_sum", {}, float(counts.get(f"{metric.name}_sum", {}).get((), 0)))
