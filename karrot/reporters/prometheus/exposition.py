"""Answers ``/metrics``: reads all metrics from the log at each scrape, and writes them in the scraper's format.

`group_metrics` makes the metrics of the groups. This module makes Karrot's own metrics: counters, log, reporters, and
the time of each cluster's last event. Between scrapes, this module keeps only the text of unchanged groups.
"""

import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from karrot import __version__, burrow_cut_off, mutes, telemetry
from karrot.eventlog.base import HOUSEKEEPING, Counter, GroupState, LogUnavailableError
from karrot.eventlog.event_log import EventLog
from karrot.reporters.base import backlog
from karrot.reporters.prometheus.group_metrics import (
    ExportedGroup,
    Family,
    by_label,
    group_families,
    label_value,
    labels_of,
    line,
    one,
    opaque,
    partition_families,
    row_of,
    second_opinions,
    watched_families,
)

Labels = tuple[tuple[str, str], ...]

_ORDER = {metric.name: place for place, metric in enumerate(telemetry.METRICS)}
_NOW = {metric.name: metric.now for metric in telemetry.METRICS if metric.now}
"""The new name of each deprecated metric."""
_OPENMETRICS = "application/openmetrics-text"
_EOF = b"# EOF\n"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """Options for the metrics. ``reporters`` names the reporters with exported backlogs. ``None`` means all."""

    partition_metrics: bool = False
    topic_metrics: bool = False
    watch: bool = False
    exclude: re.Pattern[str] | None = None
    expected_clusters: tuple[str, ...] = ()
    reporters: tuple[str, ...] | None = None

    def excludes(self, consumer: str) -> bool:
        """Whether a group is not exported because its label value contains a match of ``exclude``."""
        return self.exclude is not None and self.exclude.search(consumer) is not None


class LogCollector:
    """Reads every declared metric from the log. ``count`` adds to the shared counters."""

    def __init__(self, log: EventLog, options: Options, count: Callable[..., None]) -> None:
        self._log = log
        self._options = options
        self._count = count
        self._known: dict[tuple[str, str], ExportedGroup] = {}
        self._cut_off: Collection[str] = ()
        self._since_ms = log.log_time_ms()
        # the note, its mutes, the groups that were matched with them, and the end of each muted group by its line
        self._mutes: tuple[bytes | None, list[mutes.Mute], set[tuple[str, str]], dict[str, int]] = (None, [], set(), {})
        self._most_matched = 0

    def describe(self) -> Sequence[ClientMetric]:
        """Return nothing. Without this method, registering this collector would collect all metrics."""
        return ()

    def collect(self) -> Iterator[ClientMetric]:
        """Convert the families to the client library's objects, for a registry. `render` writes `families` directly."""
        text = b"".join(_written(self.families(), (), openmetrics=True)) + _EOF
        return text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call, no-any-return]

    def families(self) -> Sequence[Family]:
        """All families, in the order of `karrot.telemetry.METRICS`. Some need no log, and are present without a log."""
        try:
            families, is_readable = list(self._read()), True
        except LogUnavailableError as error:
            _log.warning("a scrape cannot read the event log", code="scrape_without_log", reason=str(error))
            families, is_readable = [], False
        build = tuple(zip(telemetry.BUILD_INFO.labels, (__version__, platform.python_version()), strict=True))
        families.append(Family(telemetry.BUILD_INFO, [line(telemetry.BUILD_INFO.name, build, 1)]))
        families.append(one(telemetry.LOG_WRITABLE, int(is_readable and self._log.writable() is None)))
        return sorted(families, key=lambda family: _ORDER[family.metric.name])

    def _read(self) -> Iterator[Family]:
        log, options = self._log, self._options
        live = [state for state in log.live() if not state.is_test]
        of_burrow = [state for state in live if state.is_of_burrow]
        rows = self._rows([state for state in live if not state.is_of_burrow] if of_burrow else live)
        yield from group_families(rows)
        yield second_opinions(rows, log.log_time_ms())
        yield Family(telemetry.CONSUMER_MUTED, (self._muted(rows),))
        yield one(telemetry.CONSUMERS, len(live))

        lags: dict[str, float] = {}
        for state in of_burrow:  # several Burrows of a cluster may post
            if (lag := state.without_old_lag(self._cut_off).summary.total_lag) is not None:
                cluster = label_value(state.key.cluster)
                lags[cluster] = max(lags.get(cluster, 0), lag)
        yield by_label(telemetry.BURROW_SELF_LAG, lags)
        known = {label_value(cluster): each for cluster, each in burrow_cut_off.read(log).items()}
        yield by_label(telemetry.BURROW_LAST_COMMIT, {name: each.newest_ms / 1000 for name, each in known.items()})
        yield by_label(telemetry.BURROW_CUT_OFF, {name: int(each.is_cut_off) for name, each in known.items()})
        heard: dict[str, float] = {}
        for name, at_ms in log.heard().items():
            heard[label_value(name)] = max(at_ms / 1000, heard.get(label_value(name), 0))
        # Burrow writes cluster names in lower case, but the setting may not.
        written = {cluster.casefold() for cluster in heard}
        silent = {cluster: 0.0 for cluster in options.expected_clusters if cluster.casefold() not in written}
        yield by_label(telemetry.LAST_EVENT, heard | silent)

        size = log.size()
        yield one(telemetry.LOG_EVENTS, size.events)
        yield one(telemetry.LOG_SIZE_BYTES, size.bytes)
        yield one(telemetry.LOG_WAL_BYTES, size.wal_bytes)
        yield one(telemetry.LOG_MEMORY_AGE, (log.memory_age_ms() or 0) / 1000)
        states = [each for each in log.reporters() if options.reporters is None or each.name in options.reporters]
        backlogs = {state.name: backlog(log, state, size) for state in states}
        yield by_label(telemetry.REPORTER_BACKLOG_EVENTS, {name: each.events for name, each in backlogs.items()})
        yield by_label(telemetry.REPORTER_BACKLOG_AGE, {name: each.age_s for name, each in backlogs.items()})

        # The groups come from memory, so they are exported even if these families cannot be read.
        watched = watched_families(log, options.excludes) if options.watch else ()
        for parts in (self._partitions(rows), watched, self._replicas(), self._housekeeping()):
            try:
                yield from list(parts)
            except LogUnavailableError:
                continue
        yield from _counter_families(log.counters(), options.reporters or ())

    def _rows(self, states: Sequence[GroupState]) -> list[ExportedGroup]:
        """Make one row per pair of label values. Of two groups with the same pair, the newest event's group wins."""
        rows: dict[tuple[str, str], ExportedGroup] = {}
        # Use the previous scrape's row of each group whose state has not changed. Of two simultaneous scrapes, each
        # makes its own rows, and the rows of the later scrape stay.
        if (cut_off := burrow_cut_off.cut_off(self._log)) != self._cut_off:
            self._known, self._cut_off = {}, cut_off
        known = self._known
        changed = [of for of in states if not ((row := known.get(of.key)) and row.state is of)]
        shown = burrow_cut_off.judged(self._log, changed, cut_off)
        rows_of_changed = {
            of.key: row_of(of, now.without_old_lag(cut_off)) for of, now in zip(changed, shown, strict=True)
        }
        self._known = {of.key: rows_of_changed.get(of.key) or known[of.key] for of in states}
        made = self._known.values()
        # Match the shortened label value, because `.*-canary$` on 50,000 characters takes 5 s and blocks the worker.
        exported = [row for row in made if not self._options.excludes(row.consumer)]
        for row in exported:
            kept = rows.get((row.cluster, row.consumer))
            if kept is None or kept.state.seq < row.state.seq:
                rows[row.cluster, row.consumer] = row
        if dropped := len(exported) - len(rows):
            self._count(telemetry.SERIES_DROPPED, dropped)
        return list(rows.values())

    def _muted(self, rows: Sequence[ExportedGroup]) -> str:
        """The lines of the muted groups, also of those that have vanished. Each group is matched only once.

        A group that vanishes was exported before, so the vanished groups are read only when the mutes change.
        """
        keys = [row.state.key for row in rows]
        with suppress(LogUnavailableError):
            note = self._log.recall(*mutes.NOTE)
            if note != self._mutes[0] or len(self._mutes[2]) > self._most_matched:
                known = mutes.decode(note)
                keys += self._log.vanished() if known else ()
                self._mutes, self._most_matched = (note, known, set(), {}), 2 * len(keys) + 1000
        _, known, matched, ends = self._mutes
        now_ms = self._log.wall_ms_at(self._log.log_time_ms())
        if known and (new := [key for key in keys if key not in matched]):
            mute_of = mutes.finder(known, now_ms)
            for key in new:
                matched.add(key)
                if (mute := mute_of(key)) and not self._options.excludes(label_value(key.consumer)):
                    ends[f"{telemetry.CONSUMER_MUTED.name}{{{labels_of(key)}}} 1\n"] = mute.until_ms
        return "".join([text for text, end_ms in [*ends.items()] if end_ms > now_ms])

    def _partitions(self, rows: Sequence[ExportedGroup]) -> Iterator[Family]:
        by_topic, by_partition = self._options.topic_metrics, self._options.partition_metrics
        if by_topic or by_partition:
            rows = [row for row in rows if not row.state.has_old_lag(self._cut_off)]
            families, left_out = partition_families(self._log, rows, by_topic=by_topic, by_partition=by_partition)
            if left_out:
                self._count(telemetry.SERIES_DROPPED, left_out)
            yield from families

    def _replicas(self) -> Iterator[Family]:
        """The families of the leader and the standbys, without samples if only one machine can use the log."""
        log = self._log
        server = log.database()
        # While the database is unreachable, no replica can lead, and the leader's name in memory may be wrong.
        leader = log.leader() if log.memory_age_ms() is None else None
        yield by_label(telemetry.LEADER_INFO, {} if leader is None else {opaque(leader): 1})
        yield one(telemetry.REPLICA_LEADS, None if log.replica is None else int(leader == log.replica))
        lags = (server and server.standby_lag_seconds) or {}
        yield by_label(telemetry.LOG_STANDBY_LAG, {opaque(name): seconds for name, seconds in lags.items()})

    def _housekeeping(self) -> Iterator[Family]:
        noted = self._log.recall(*HOUSEKEEPING) or b""
        done_ms = int(noted) if noted.isdigit() else self._since_ms
        yield one(telemetry.LOG_HOUSEKEEPING_AGE, max(0, self._log.log_time_ms() - done_ms) / 1000)


def _counter_families(counters: Iterable[Counter], reporters: Sequence[str]) -> Iterator[Family]:
    """Yield only declared counters and histograms. A counter with known label values begins at 0."""
    counts: dict[str, dict[Labels, float]] = {}
    for name, labels, value in counters:
        # An older version that runs at the same time counts under the old name.
        counted = counts.setdefault(_NOW.get(name, name), {})
        total = counted.get(key := tuple(sorted(labels)), 0) + value
        # A log may store 1.0 or 1, and both must give the same line.
        counted[key] = int(total) if total == int(total) else total
    for metric in telemetry.METRICS:
        name = metric.name
        if metric.edges:
            buckets, total = counts.get(f"{name}_bucket", {}), 0
            lines = []
            for edge in metric.edges:
                total += buckets.get((("le", edge),), 0)
                lines.append(line(f"{name}_bucket", [("le", edge)], total))
            seconds = float(counts.get(f"{name}_sum", {}).get((), 0))
            yield Family(metric, [*lines, line(f"{name}_count", (), total), line(f"{name}_sum", (), seconds)])
        elif metric.kind == "counter" and "consumer" not in metric.labels:
            values = reporters if metric.labels == ("reporter",) else metric.known
            zeros: dict[Labels, float] = {((label, value),): 0 for label in metric.labels[:1] for value in values}
            found = (zeros if metric.labels else {(): 0}) | counts.get(metric.now or name, {})
            declared = [key for key in found if {label for label, _ in key} == set(metric.labels)]
            yield Family(metric, [line(name, key, found[key]) for key in declared])


def render(
    collectors: Mapping[str, Collector],
    accept: str = "",
    names: Collection[str] = (),
    *,
    count: Callable[..., None] = lambda *_, **__: None,
) -> tuple[str, Iterator[bytes]]:
    """Return the content type for an ``Accept`` header, and the chunks of the exposition, which are made lazily.

    The keys of ``collectors`` are reporter names. ``names`` limits the answer to samples with these names (``name[]``).
    A third-party collector that fails is left out, logged, and counted with ``count``.
    """
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # raised by the client library for a version that is not a number, such as "x"
        encode, content_type = choose_encoder("")
    openmetrics = content_type.startswith(_OPENMETRICS)

    def pieces() -> Iterator[bytes]:
        for name, collector in collectors.items():
            if isinstance(collector, LogCollector):
                yield from _written(collector.families(), names, openmetrics=openmetrics)
                continue
            try:
                text = encode(_Chosen(collector, names) if names or openmetrics else collector)
            except Exception:  # noqa: BLE001 - third-party code: the other metrics are valid after any error
                _log.exception("a collector failed", code="collector_failed", reporter=name)
                count(telemetry.REPORTER_FAILURES, reporter=name, reason="collect")
            else:
                yield text.removesuffix(_EOF)
        if openmetrics:
            yield _EOF

    return content_type, pieces()


def _written(families: Iterable[Family], names: Collection[str], *, openmetrics: bool) -> Iterator[bytes]:
    for metric, pieces in families:
        chosen = pieces
        if names:
            if isinstance(pieces, list):  # one line in each piece
                chosen = [each for each in pieces if re.split("[{ ]", each, maxsplit=1)[0] in names]
            if not chosen or (chosen is pieces and metric.name not in names):
                continue
        # In OpenMetrics, the name of a counter or an info has no suffix, but the names of its samples have one.
        suffix = {"counter": "_total", "info": "_info"}.get(metric.kind, "") if openmetrics else ""
        name = metric.name.removesuffix(suffix)
        kind = metric.kind if openmetrics or metric.kind != "info" else "gauge"
        unit = telemetry.unit_of(name) if openmetrics else ""
        of_unit = f"# UNIT {name} {unit}\n" if unit else ""
        yield f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n{of_unit}".encode()
        # Lone surrogates, which intake refuses, must not make a scrape fail.
        yield from (piece.encode("utf-8", "replace") for piece in chosen)


class _Chosen(NamedTuple):
    """Limits a collector to samples with certain names, if there are names, and adds the units of OpenMetrics."""

    collector: Collector
    names: Collection[str]

    def collect(self) -> Iterator[ClientMetric]:
        for metric in self.collector.collect():
            samples = [each for each in metric.samples if not self.names or each.name in self.names]
            if samples or not self.names:
                unit = "" if metric.type in {"info", "stateset"} else telemetry.unit_of(metric.name)
                chosen = ClientMetric(metric.name, metric.documentation, metric.type, metric.unit or unit)
                chosen.samples = samples
                yield chosen
