"""Answers ``/metrics``: collects all metrics from the log at the scrape, and writes them in the scraper's format.

`group_metrics` makes the metrics of the groups, and this module makes those of Karrot itself: counters, log, reporters,
and the time of each cluster's last event. Between scrapes, it keeps only the text of unchanged groups.
"""

import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.core import Sample
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from karrot import __version__, telemetry
from karrot.eventlog.base import HOUSEKEEPING, Counter, EventLog, GroupState, LogUnavailableError, ReporterState
from karrot.reporters import commits_read
from karrot.reporters.base import backlog
from karrot.reporters.prometheus.group_metrics import (
    ExportedGroup,
    Family,
    ListedFamily,
    family_name,
    group_families,
    header,
    label_value,
    listed_partitions,
    opaque,
    partition_families,
    row_of,
    sample,
    second_opinions,
    topic_families,
    watched_families,
)
from karrot.telemetry import Histogram, Metric

Counts = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]

_ORDER = {metric.name: place for place, metric in enumerate(telemetry.METRICS)}
_NOW = {metric.name: metric.now for metric in telemetry.METRICS if metric.now}
"""The present name of each deprecated metric."""
_OPENMETRICS = "application/openmetrics-text"
_EOF = b"# EOF\n"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What is exported in addition to the groups' metrics. ``reporters`` are the reporters whose backlogs are shown."""

    partition_metrics: bool = False
    topic_metrics: bool = False
    watch: bool = False
    exclude: re.Pattern[str] | None = None
    expected_clusters: tuple[str, ...] = ()
    reporters: tuple[str, ...] | None = None

    def excludes(self, consumer: str) -> bool:
        """Whether a group is stored but not exported. The expression matches anywhere in the group's label value."""
        return self.exclude is not None and self.exclude.search(consumer) is not None


class LogCollector:
    """Every declared metric, read from the log. ``count`` adds to the shared counters."""

    def __init__(self, log: EventLog, options: Options, count: Callable[..., None]) -> None:
        self._log = log
        self._options = options
        self._count = count
        self._known: dict[tuple[str, str], ExportedGroup] = {}
        self._since_ms = log.log_time_ms()

    def describe(self) -> Sequence[ClientMetric]:
        """Nothing, because registering this collector would otherwise collect all metrics."""
        return ()

    def collect(self) -> Iterator[ClientMetric]:
        """The families as objects of the client library. `families` is faster than this method."""
        return map(_client_metric, self.families())

    def families(self) -> Sequence[Family]:
        """All families, in the order of `karrot.telemetry.METRICS`; without a log, those that do not need it."""
        try:
            families = [*self._read(), *_always(self._log)]
        except LogUnavailableError as error:
            _log.warning("a scrape cannot read the event log", code="scrape_without_log", reason=str(error))
            families = list(_always(self._log, readable=False))
        return sorted(families, key=lambda family: _ORDER[family.metric.name])

    def _read(self) -> Iterator[Family]:
        live = [state for state in self._log.live() if not state.is_test]
        of_burrow = [state for state in live if state.is_of_burrow]
        rows = self._rows([state for state in live if not state.is_of_burrow] if of_burrow else live)
        yield from group_families(rows)
        yield second_opinions(rows, self._log.log_time_ms())
        yield from _if_readable(self._by_partition(rows))
        if self._options.watch:
            yield from _if_readable(watched_families(self._log, self._options.excludes))
        yield _burrow_self_lag(of_burrow)
        known = {label_value(cluster): each for cluster, each in commits_read.read(self._log).items()}
        yield _by_cluster(telemetry.BURROW_LAST_COMMIT, {name: each.newest_ms / 1000 for name, each in known.items()})
        yield _by_cluster(telemetry.BURROW_CUT_OFF, {name: int(each.is_cut_off) for name, each in known.items()})
        yield _one(telemetry.CONSUMERS, len(live))
        yield _heard_family(self._log, self._options.expected_clusters)
        yield from _log_families(self._log)
        yield from _if_readable(_replica_families(self._log))
        yield from _if_readable(self._housekeeping())
        chosen = self._options.reporters
        states = [state for state in self._log.reporters() if chosen is None or state.name in chosen]
        yield from _reporter_families(self._log, states)
        yield from _counter_families(self._log.counters(), chosen or ())
        yield _one(telemetry.LOG_MEMORY_AGE, (self._log.memory_age_ms() or 0) / 1000)

    def _rows(self, states: Sequence[GroupState]) -> list[ExportedGroup]:
        """One row per pair of label values. If two groups have the same pair, the group with the newest event wins."""
        rows: dict[tuple[str, str], ExportedGroup] = {}
        # The rows of the scrape before: most groups have not changed, and have the same state. Two scrapes at the same
        # time each make their rows, and the later ones stay.
        known = self._known
        made = [row if (row := known.get(state.key)) and row.state is state else row_of(state) for state in states]
        self._known = {row.state.key: row for row in made}
        # Match the shortened label value. On 50,000 characters, `.*-canary$` takes 5 s and blocks the worker.
        exported = [row for row in made if not self._options.excludes(row.consumer)]
        for row in exported:
            kept = rows.get((row.cluster, row.consumer))
            if kept is None or kept.state.seq < row.state.seq:
                rows[row.cluster, row.consumer] = row
        if dropped := len(exported) - len(rows):
            self._count(telemetry.SERIES_DROPPED, dropped)
        return list(rows.values())

    def _housekeeping(self) -> Iterator[Family]:
        noted = self._log.recall(*HOUSEKEEPING) or b""
        done_ms = int(noted) if noted.isdigit() else self._since_ms
        yield _one(telemetry.LOG_HOUSEKEEPING_AGE, max(0, self._log.log_time_ms() - done_ms) / 1000)

    def _by_partition(self, rows: Sequence[ExportedGroup]) -> Iterator[Family]:
        if not (self._options.partition_metrics or self._options.topic_metrics):
            return
        listed = listed_partitions(self._log, rows)
        if listed.left_out:
            self._count(telemetry.SERIES_DROPPED, listed.left_out)
        if self._options.topic_metrics:
            yield from topic_families(listed)
        if self._options.partition_metrics:
            yield from partition_families(listed)


def _if_readable(families: Iterator[Family]) -> Sequence[Family]:
    """The families. None of them if the log cannot be read: the groups, which it keeps in memory, are shown anyway."""
    try:
        return list(families)
    except LogUnavailableError:
        return ()


def _burrow_self_lag(states: Sequence[GroupState]) -> Family:
    """The largest lag of a Burrow's own group in each cluster: any of them may post."""
    lags: dict[str, int] = {}
    for state in states:
        if state.summary.total_lag is not None:
            cluster = label_value(state.key.cluster)
            lags[cluster] = max(lags.get(cluster, 0), state.summary.total_lag)
    return _by_cluster(telemetry.BURROW_SELF_LAG, lags)


def _by_cluster(metric: Metric, values: Mapping[str, float]) -> ListedFamily:
    return ListedFamily(metric, [sample(metric, (cluster,), value) for cluster, value in values.items()])


def _one(metric: Metric, value: float) -> ListedFamily:
    return ListedFamily(metric, [sample(metric, (), value)])


def _always(log: EventLog, *, readable: bool = True) -> Iterator[ListedFamily]:
    """The families that are exported even if the log cannot be read."""
    build = sample(telemetry.BUILD_INFO, (__version__, platform.python_version()), 1)
    yield ListedFamily(telemetry.BUILD_INFO, [build])
    yield _one(telemetry.LOG_WRITABLE, int(readable and log.writable() is None))


def _log_families(log: EventLog) -> Iterator[ListedFamily]:
    size = log.size()
    yield _one(telemetry.LOG_EVENTS, size.events)
    yield _one(telemetry.LOG_SIZE_BYTES, size.bytes)
    yield _one(telemetry.LOG_WAL_BYTES, size.wal_bytes)


def _replica_families(log: EventLog) -> Iterator[ListedFamily]:
    """Which replica leads, and the standbys of the server. Without samples if only one machine can use the log."""
    info, leads, lag = telemetry.LEADER_INFO, telemetry.REPLICA_LEADS, telemetry.LOG_STANDBY_LAG
    server = log.database()
    # Nobody can lead while the database is away. The name in memory may be of a process that has stopped to lead.
    leader = log.leader() if log.memory_age_ms() is None else None
    yield ListedFamily(info, [] if leader is None else [sample(info, (opaque(leader),), 1)])
    yield ListedFamily(leads, [] if log.replica is None else [sample(leads, (), int(leader == log.replica))])
    lags = {opaque(name): seconds for name, seconds in ((server and server.standby_lag_seconds) or {}).items()}
    yield ListedFamily(lag, (sample(lag, (name,), seconds) for name, seconds in lags.items()))


def _heard_family(log: EventLog, expected: Iterable[str]) -> ListedFamily:
    """The time of each cluster's last webhook. Burrow writes cluster names in lower case, but the setting may not."""
    heard: dict[str, int] = {}
    for cluster, at_ms in log.heard().items():
        heard[label_value(cluster)] = max(at_ms, heard.get(label_value(cluster), 0))
    known = {cluster.casefold() for cluster in heard}
    silent = {cluster: 0 for cluster in expected if cluster.casefold() not in known}
    return _by_cluster(telemetry.LAST_EVENT, {name: at_ms / 1000 for name, at_ms in {**heard, **silent}.items()})


def _counter_families(counters: Iterable[Counter], reporters: Sequence[str]) -> Iterator[ListedFamily]:
    """Every declared counter and histogram, and no other. With known labels, it begins at 0."""
    counts: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for name, labels, value in counters:
        # An older version counted under the old name, and may still run next to this one.
        counted = counts.setdefault(_NOW.get(name, name), {})
        total = counted.get(key := tuple(sorted(labels)), 0) + value
        # A log may store 1.0 or 1. Both must give the same line.
        counted[key] = int(total) if total == int(total) else total
    for metric in telemetry.METRICS:
        if isinstance(metric, Histogram):
            yield ListedFamily(metric, _histogram(metric, counts))
        elif metric.kind == "counter" and "consumer" not in metric.labels:
            yield ListedFamily(metric, _counter(metric, counts, reporters))


def _reporter_families(log: EventLog, states: Iterable[ReporterState]) -> Iterator[ListedFamily]:
    size = log.size()
    backlogs = [(state.name, *backlog(log, state, size)) for state in states]
    events, age = telemetry.REPORTER_BACKLOG_EVENTS, telemetry.REPORTER_BACKLOG_AGE
    yield ListedFamily(events, (sample(events, (name,), waiting) for name, waiting, _ in backlogs))
    yield ListedFamily(age, (sample(age, (name,), seconds) for name, _, seconds in backlogs if seconds is not None))


def _counter(metric: Metric, counts: Counts, reporters: Sequence[str]) -> Iterator[Sample]:
    zeros = dict.fromkeys(_known(metric, reporters), 0)
    for labels, value in {**zeros, **counts.get(metric.now or metric.name, {})}.items():
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


def _client_metric(family: Family) -> ClientMetric:
    metric = ClientMetric(family_name(family.metric), family.metric.help, family.metric.kind)
    metric.samples = list(family.samples())
    return metric


def _uncounted(_name: str, _by: float = 1, **_labels: str) -> None:
    """Count nothing. This is the default for ``count``."""


def render(
    collectors: Mapping[str, Collector],
    accept: str = "",
    names: Sequence[str] = (),
    *,
    count: Callable[..., None] = _uncounted,
) -> tuple[str, Iterator[bytes]]:
    """The content type for an ``Accept`` header, and the exposition in pieces. Each piece is made when it is read.

    ``collectors`` are by the names of their reporters. ``names`` limits the answer to samples with these names
    (``name[]``). A third-party collector that fails is left out, logged, and counted with ``count``.
    """
    content_type, encode = _chosen(accept)
    openmetrics = content_type.startswith(_OPENMETRICS)
    return content_type, _exposition(collectors, frozenset(names), encode, count, openmetrics=openmetrics)


def _chosen(accept: str) -> tuple[str, Callable[[Collector], bytes]]:
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # raised by the client library for a version that is not a number, such as "x"
        encode, content_type = choose_encoder("")
    return content_type, encode


def _exposition(
    collectors: Mapping[str, Collector],
    names: Collection[str],
    encode: Callable[[Collector], bytes],
    count: Callable[..., None],
    *,
    openmetrics: bool,
) -> Iterator[bytes]:
    for name, collector in collectors.items():
        if isinstance(collector, LogCollector):
            yield from _written(collector.families(), names, openmetrics=openmetrics)
        else:
            yield _encoded(name, collector, names, encode, count)
    if openmetrics:
        yield _EOF


def _written(families: Iterable[Family], names: Collection[str], *, openmetrics: bool) -> Iterator[bytes]:
    for family in families:
        chosen = family.only(names) if names else family
        if chosen is not None:
            yield header(chosen.metric, openmetrics=openmetrics).encode()
            # Intake refuses lone surrogates. But if one gets here, the scrape must still succeed.
            yield from (piece.encode("utf-8", "replace") for piece in chosen.pieces())


def _encoded(
    name: str,
    collector: Collector,
    names: Collection[str],
    encode: Callable[[Collector], bytes],
    count: Callable[..., None],
) -> bytes:
    try:
        return encode(_Chosen(collector, names) if names else collector).removesuffix(_EOF)
    except Exception:  # noqa: BLE001 - third-party code: the other metrics are valid after any error
        _log.exception("a collector failed", code="collector_failed", reporter=name)
        count(telemetry.REPORTER_FAILURES, reporter=name, reason="collect")
        return b""


class _Chosen(NamedTuple):
    """A collector limited to samples with certain names."""

    collector: Collector
    names: Collection[str]

    def collect(self) -> Iterator[ClientMetric]:
        for metric in self.collector.collect():
            samples = [each for each in metric.samples if each.name in self.names]
            if samples:
                chosen = ClientMetric(metric.name, metric.documentation, metric.type, metric.unit)
                chosen.samples = samples
                yield chosen
