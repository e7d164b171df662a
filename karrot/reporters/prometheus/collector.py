"""Collects all of Karrot's metrics from the log at scrape time. It keeps only the text of unchanged groups."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog
from prometheus_client.core import Metric as ClientMetric

from karrot import telemetry
from karrot.eventlog.base import EventLog, GroupState, LogUnavailableError
from karrot.reporters.prometheus import self_metrics
from karrot.reporters.prometheus.group_metrics import (
    ExportedGroup,
    Family,
    group_families,
    listed_partitions,
    partition_families,
    row_of,
    topic_families,
    watched_families,
)
from karrot.reporters.prometheus.metric_family import ListedFamily, family_name, label_value, sample

_ORDER = {metric.name: place for place, metric in enumerate(telemetry.METRICS)}

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

    def describe(self) -> Sequence[ClientMetric]:
        """Nothing, because registering this collector would otherwise collect all metrics."""
        return ()

    def collect(self) -> Iterator[ClientMetric]:
        """The families as objects of the client library. `families` is faster than this method."""
        return map(_client_metric, self.families())

    def families(self) -> Sequence[Family]:
        """All families, completely read, in the order of `karrot.telemetry.METRICS`.

        If the log cannot be read, the result has only the families that do not need the log.
        """
        try:
            families = [*self._read(), *self_metrics.always(self._log)]
        except LogUnavailableError as error:
            _log.warning("scrape_without_log", error=str(error))
            families = list(self_metrics.always(self._log, readable=False))
        return sorted(families, key=lambda family: _ORDER[family.metric.name])

    def _read(self) -> Iterator[Family]:
        live = self._log.live()
        of_burrow = [state for state in live if state.is_of_burrow]
        rows = self._rows([state for state in live if not state.is_of_burrow] if of_burrow else live)
        yield from group_families(rows)
        yield from self._by_partition(rows)
        if self._options.watch:
            yield from watched_families(self._log, self._options.excludes)
        yield _burrow_self_lag(of_burrow)
        yield self_metrics.one(telemetry.CONSUMERS, len(live))
        yield self_metrics.heard_family(self._log, self._options.expected_clusters)
        yield from self_metrics.log_families(self._log)
        chosen = self._options.reporters
        states = [state for state in self._log.reporters() if chosen is None or state.name in chosen]
        yield from self_metrics.reporter_families(self._log, states)
        yield from self_metrics.counter_families(self._log.counters(), chosen or ())

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
            self._count(telemetry.SERIES_DROPPED.name, dropped)
        return list(rows.values())

    def _by_partition(self, rows: Sequence[ExportedGroup]) -> Iterator[Family]:
        if not (self._options.partition_metrics or self._options.topic_metrics):
            return
        listed = listed_partitions(self._log, rows)
        if self._options.topic_metrics:
            yield from topic_families(listed)
        if self._options.partition_metrics:
            yield from partition_families(listed)


def _burrow_self_lag(states: Sequence[GroupState]) -> Family:
    """The lag of Burrow's own group in each cluster. If several Burrows watch a cluster, the largest lag.

    Any of these Burrows may be the Burrow that posts events.
    """
    lags: dict[str, int] = {}
    for state in states:
        if state.summary.total_lag is not None:
            cluster = label_value(state.key.cluster)
            lags[cluster] = max(lags.get(cluster, 0), state.summary.total_lag)
    metric = telemetry.BURROW_SELF_LAG
    return ListedFamily(metric, (sample(metric, (cluster,), lag) for cluster, lag in lags.items()))


def _client_metric(family: Family) -> ClientMetric:
    """The family as an object of the client library."""
    metric = ClientMetric(family_name(family.metric), family.metric.help, family.metric.kind)
    metric.samples = list(family.samples())
    return metric
