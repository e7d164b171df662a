"""Makes the metrics of each consumer group, and of its topics and partitions.

Some metrics come from the verdicts, others from the data that ``karrot watch`` reads from Kafka. The metrics by topic
and by partition are opt-in, because each scrape must read events of each group for them. A webhook has only the
partitions worse than OK and the partition with the largest lag. Burrow's REST API and Kafka list all partitions.
Webhooks change the partitions of their newest list. The lag of a topic comes only from this list, as one moment.

With 10,000 groups, the metrics of groups are nearly the whole answer. So this module writes their lines directly from
the log's values. It escapes labels once per group, and creates no object for a sample.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from prometheus_client.core import Sample

from karrot import telemetry
from karrot.event import ABANDONED, AgeKind, PartitionLag, Status
from karrot.eventlog import watched_groups
from karrot.eventlog.base import EventLog, EventSummary, GroupState, IncidentState
from karrot.eventlog.group_state import BAD_STATUSES
from karrot.eventlog.watched_groups import STATES, GroupHealth, WatchedCluster
from karrot.telemetry import Metric

MAX_LENGTH = 512
"""The maximum length of a label value in characters."""

_DIGEST = 8


def label_value(name: str) -> str:
    """The name as a label value. NUL becomes U+FFFD. A long name is cut, and ends in ``~`` and part of its SHA-256."""
    clean = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(clean) <= MAX_LENGTH:
        return clean
    return f"{clean[: MAX_LENGTH - _DIGEST - 1]}~{opaque(name)}"


def opaque(name: str) -> str:
    """Eight hex digits for the name of a machine of ours: ``/metrics`` may need no credentials."""
    return sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGEST]


def escaped(value: str) -> str:
    """A label value escaped for both text formats, without the quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class ListedFamily:
    """A family with few samples, kept in a list."""

    def __init__(self, metric: Metric, samples: Iterable[Sample]) -> None:
        self.metric = metric
        self._samples = tuple(samples)

    def samples(self) -> Iterator[Sample]:
        return iter(self._samples)

    def pieces(self) -> Iterator[str]:
        return map(_line, self._samples)

    def only(self, names: Collection[str]) -> "ListedFamily | None":
        chosen = [each for each in self._samples if each.name in names]
        return ListedFamily(self.metric, chosen) if chosen else None


def sample(metric: Metric, values: Iterable[str], value: float) -> Sample:
    return Sample(metric.name, dict(zip(metric.labels, values, strict=True)), value)


def header(metric: Metric, *, openmetrics: bool) -> str:
    """The HELP and TYPE lines. In OpenMetrics, the family has a name of its own. The samples keep their name."""
    name = family_name(metric) if openmetrics else metric.name
    kind = metric.kind if openmetrics or metric.kind != "info" else "gauge"
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n"


def family_name(metric: Metric) -> str:
    """The name of the family, without the ``_total`` of a counter and the ``_info`` of an info."""
    suffixes = {"counter": "_total", "info": "_info"}
    return metric.name.removesuffix(suffixes.get(metric.kind, ""))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}} {sample.value}\n" if labels else f"{sample.name} {sample.value}\n"


MOST_PARTITIONS = 100_000
"""The most partitions in one answer: each costs about 20 microseconds and 1.5 kB."""

_BOUND = AgeKind.AT_LEAST
_ROWS_PER_PIECE = 1000
_GROUP_STATUSES = {status.name: status for status in (Status.OK, Status.WARN, Status.ERR)}
_PARTITION_STATUSES = (Status.OK, Status.WARN, Status.STOP, Status.STALL, Status.REWIND)
_ASKED_FIRST = (
    telemetry.CONSUMER_LAG,
    telemetry.CONSUMER_LAG_SECONDS,
    telemetry.CONSUMER_SCALABLE_LAG,
    telemetry.CONSUMER_STATUS_CODE,
)
_OF_ABANDONED = (telemetry.CONSUMER_LAG, telemetry.CONSUMER_SCALABLE_LAG, telemetry.CONSUMER_LAST_EVENT)


class ExportedGroup(NamedTuple):
    """A group and the label values under which it is exported. ``text`` has the labels as they appear in a line.

    ``status`` is ``None`` if the event's text is not a status of a group. ``values`` are the values of all columns of
    `group_families`, as they appear in a line.
    """

    cluster: str
    consumer: str
    text: str
    status: Status | None
    state: GroupState
    values: tuple[str | None, ...] = ()

    @property
    def summary(self) -> EventSummary:
        return self.state.summary

    def has(self, metric: Metric) -> bool:
        """Whether the group has the metric. An abandoned group has only those by which services start from zero."""
        return self.summary.status_text != ABANDONED or metric in _OF_ABANDONED

    @property
    def incident(self) -> IncidentState:
        return self.state.incident


class MetricNameQuery(NamedTuple):
    """A query for a metric that the user can copy, and the language of the query."""

    where: str
    text: str


Value = Callable[[ExportedGroup], float | None]


class GroupMetric(NamedTuple):
    """One sample per group, with a status label if ``status`` is set. ``value`` may give ``None``: no sample."""

    status: Status | None
    value: Value


def row_of(state: GroupState) -> ExportedGroup:
    cluster, consumer = map(label_value, state.key)
    text = f'cluster="{escaped(cluster)}",consumer="{escaped(consumer)}"'
    row = ExportedGroup(cluster, consumer, text, _GROUP_STATUSES.get(state.summary.status_text), state)
    values = (value_of(row) if row.has(metric) else None for metric, columns in _FAMILIES for _, value_of in columns)
    return row._replace(values=tuple(None if value is None else f"{value}" for value in values))


class GroupFamily:
    """A metric family with samples for all groups. ``values`` are the values of each column, as text, by row."""

    def __init__(
        self,
        metric: Metric,
        columns: Sequence[GroupMetric],
        rows: Sequence[ExportedGroup],
        values: Sequence[Sequence[str | None]],
    ) -> None:
        self.metric = metric
        self._columns = columns
        self._rows = rows
        self._values = values

    def samples(self) -> Iterator[Sample]:
        for status, value_of in self._columns:
            extra = {} if status is None else {"status": status.name}
            for row in self._rows:
                value = value_of(row) if row.has(self.metric) else None
                if value is not None:
                    yield Sample(self.metric.name, {"cluster": row.cluster, "consumer": row.consumer, **extra}, value)

    def pieces(self) -> Iterator[str]:
        head = f"{self.metric.name}{{"
        for (status, _), values in zip(self._columns, self._values, strict=True):
            tail = "}" if status is None else f',status="{status.name}"}}'
            for start in range(0, len(self._rows), _ROWS_PER_PIECE):
                part = slice(start, start + _ROWS_PER_PIECE)
                yield "".join(
                    [
                        f"{head}{row.text}{tail} {value}\n"
                        for row, value in zip(self._rows[part], values[part], strict=True)
                        if value is not None
                    ]
                )

    def only(self, names: Collection[str]) -> "GroupFamily | None":
        """The whole family or ``None``, because every sample has the metric's name."""
        return self if self.metric.name in names else None


Family = GroupFamily | ListedFamily
"""One declared metric with its samples at one moment. Both text formats have the same lines."""


def group_families(rows: Sequence[ExportedGroup]) -> Iterator[GroupFamily]:
    """Every family of groups, in the order of `karrot.telemetry.METRICS`."""
    values = iter(list(zip(*(row.values for row in rows), strict=True)) or [()] * _COLUMNS)
    for metric, columns in _FAMILIES:
        yield GroupFamily(metric, columns, rows, [next(values) for _ in columns])


def promql_queries(cluster: str, consumer: str) -> list[MetricNameQuery]:
    labels = f'cluster="{_quoted(cluster)}",consumer="{_quoted(consumer)}"'
    return [MetricNameQuery("PromQL", f"{metric.name}{{{labels}}}") for metric in _ASKED_FIRST]


def _quoted(name: str) -> str:
    """A label value for PromQL, without the quotes. Invisible characters are escaped. PromQL decodes them."""
    text = escaped(label_value(name))
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def _is_status(status: Status) -> Value:
    return lambda row: None if row.status is None else int(row.status is status)


def _bad_partitions(index: int) -> Value:
    return lambda row: row.summary.bad[index]


def _complete_ratio(row: ExportedGroup) -> float | None:
    complete = row.summary.complete
    if complete is None or not 0 <= complete <= 1:
        return None
    return abs(complete)  # -0.0 is not below 0, but would be written as "-0.0"


def _seconds(at_ms: int | None) -> float | None:
    """A time in epoch seconds. ``None`` for a time before 1970, which a body can contain but which is not valid."""
    return at_ms / 1000 if at_ms is not None and at_ms > 0 else None


def _one(value: Value) -> tuple[GroupMetric, ...]:
    return (GroupMetric(None, value),)


_FAMILIES: tuple[tuple[Metric, tuple[GroupMetric, ...]], ...] = (
    (telemetry.CONSUMER_LAG, _one(lambda row: row.summary.total_lag)),
    (telemetry.CONSUMER_MAX_LAG, _one(lambda row: row.summary.max_lag)),
    (telemetry.CONSUMER_SCALABLE_LAG, _one(lambda row: row.summary.signals.scalable_lag)),
    (telemetry.CONSUMER_LAG_SECONDS, _one(lambda row: row.summary.signals.lag_seconds)),
    (
        telemetry.CONSUMER_LAG_SECONDS_AT_LEAST,
        _one(lambda row: row.summary.signals.lag_seconds if row.summary.signals.lag_seconds_kind == _BOUND else None),
    ),
    (telemetry.CONSUMER_LAG_SECONDS_KIND, _one(lambda row: row.summary.signals.lag_seconds_kind)),
    (telemetry.CONSUMER_CATCH_UP_SECONDS, _one(lambda row: row.summary.signals.catch_up_seconds)),
    (telemetry.CONSUMER_PRODUCE_RATE, _one(lambda row: row.summary.signals.produce_rate)),
    (telemetry.CONSUMER_CONSUME_RATE, _one(lambda row: row.summary.signals.consume_rate)),
    (telemetry.CONSUMER_STATUS, tuple(GroupMetric(status, _is_status(status)) for status in _GROUP_STATUSES.values())),
    (telemetry.CONSUMER_STATUS_CODE, _one(lambda row: row.status)),
    (telemetry.CONSUMER_PARTITIONS, _one(lambda row: row.summary.partition_count)),
    (
        telemetry.CONSUMER_BAD_PARTITIONS,
        tuple(GroupMetric(status, _bad_partitions(index)) for index, status in enumerate(BAD_STATUSES)),
    ),
    (telemetry.CONSUMER_COMPLETE_RATIO, _one(_complete_ratio)),
    (telemetry.CONSUMER_LAST_EVENT, _one(lambda row: _seconds(row.summary.observed_at_ms))),
    (telemetry.CONSUMER_LAST_COMMIT, _one(lambda row: _seconds(row.summary.last_commit_ms))),
    (
        telemetry.CONSUMER_INCIDENT_START,
        _one(lambda row: None if row.incident.open_id is None else _seconds(row.incident.since_ms)),
    ),
    (telemetry.CONSUMER_INCIDENTS, _one(lambda row: row.incident.total)),
)


_COLUMNS = sum(len(columns) for _, columns in _FAMILIES)

_VALUES: tuple[tuple[Metric, Callable[[GroupHealth], float | None]], ...] = (
    (telemetry.CONSUMER_MEMBERS, lambda group: group.members),
    (telemetry.CONSUMER_COORDINATOR, lambda group: group.coordinator),
    (telemetry.CONSUMER_REBALANCES, lambda group: group.rebalances),
    (telemetry.CONSUMER_MESSAGES_LOST, lambda group: group.messages_lost),
    (telemetry.CONSUMER_RETENTION_MARGIN, lambda group: group.retention_margin),
    (telemetry.CONSUMER_BEYOND_END, lambda group: group.beyond_end),
    (telemetry.CONSUMER_UNCOMMITTED, lambda group: group.uncommitted),
)

Rows = Mapping[tuple[str, str], GroupHealth]


def second_opinions(rows: Sequence[ExportedGroup], now_ms: int) -> ListedFamily:
    metric = telemetry.CONSUMER_SECOND_OPINION
    found = ((row, row.state.second_opinion(now_ms)) for row in rows)
    labels = ((row.cluster, row.consumer, one.source.value, label_value(one.status_text)) for row, one in found if one)
    return ListedFamily(metric, (sample(metric, each, 1) for each in labels))


def watched_families(log: EventLog, excludes: Callable[[str], bool]) -> Iterator[ListedFamily]:
    """The families from the last poll of `watch`: its groups, if the poll is not too old, and its time."""
    poll = watched_groups.read(log)
    rows: Rows = {}
    abandoned = []
    if poll is not None and log.log_time_ms() - poll.log_time_ms <= poll.good_for_ms:
        cluster = label_value(poll.cluster)
        named = ((label_value(group.consumer), group) for group in poll.groups if not group.abandoned)
        rows = {(cluster, consumer): group for consumer, group in named if not excludes(consumer)}
        abandoned = [sample(telemetry.WATCH_ABANDONED, (cluster,), sum(group.abandoned for group in poll.groups))]
    yield ListedFamily(telemetry.WATCH_ABANDONED, abandoned)
    yield _states(rows)
    for metric, value_of in _VALUES:
        values = ((labels, value_of(group)) for labels, group in rows.items())
        yield ListedFamily(metric, (sample(metric, labels, value) for labels, value in values if value is not None))
    yield from _last_poll(log, poll)


def _states(rows: Rows) -> ListedFamily:
    metric = telemetry.CONSUMER_GROUP_STATE
    return ListedFamily(
        metric,
        (
            sample(metric, (*labels, state), int(group.state == state))
            for labels, group in rows.items()
            for state in STATES
        ),
    )


def _last_poll(log: EventLog, poll: WatchedCluster | None) -> Iterator[ListedFamily]:
    """The time and duration of the last poll; no sample before the first one, or before Kafka answers."""
    last, seconds = telemetry.WATCH_LAST_POLL, telemetry.WATCH_POLL_SECONDS
    labels = () if poll is None else (label_value(poll.cluster),)
    at_ms = log.wall_ms_at(poll.log_time_ms) if poll and poll.polled_at_ms else 0
    yield ListedFamily(last, [sample(last, labels, at_ms / 1000)] if poll else ())
    yield ListedFamily(seconds, [sample(seconds, labels, poll.poll_seconds)] if poll and poll.polled_at_ms else ())


Place = tuple[str, str, str, str]
"""The label values of a cluster, a consumer, a topic and a partition."""


class ListedPartitions(NamedTuple):
    """Partitions and lags of topics, by labels. ``left_out`` groups did not fit into `MOST_PARTITIONS`."""

    partitions: Mapping[Place, PartitionLag]
    topic_lags: Mapping[tuple[str, str, str], int]
    left_out: int


def listed_partitions(log: EventLog, rows: Sequence[ExportedGroup]) -> ListedPartitions:
    """What is known of the partitions of each group. A topic's lag is the sum of one complete list, of one moment."""
    partitions: dict[Place, PartitionLag] = {}
    topic_lags: dict[tuple[str, str, str], int] = {}
    left_out = read = 0
    # The largest groups come last: one large group must not displace many small ones. But the sender gave the sizes.
    judged = (row for row in rows if row.summary.status_text != ABANDONED)
    by_size = sorted(judged, key=lambda row: row.summary.partition_count or 0)
    for number, row in enumerate(by_size):
        if read > 2 * MOST_PARTITIONS:
            left_out += len(by_size) - number
            break
        listed = log.listed(row.state)
        if listed is None:
            continue
        own = _by_place(row, listed.partitions)
        read += len(own)
        if len(partitions) + len(own) > MOST_PARTITIONS:
            left_out += 1
            continue
        partitions |= own
        complete = () if listed.complete is None else listed.complete.event.partitions
        for (_, _, topic, _), each in _by_place(row, complete).items():
            if each.current_lag is not None:
                key = (row.cluster, row.consumer, topic)
                topic_lags[key] = topic_lags.get(key, 0) + each.current_lag
    return ListedPartitions(partitions, topic_lags, left_out)


def _by_place(row: ExportedGroup, partitions: Iterable[PartitionLag]) -> dict[Place, PartitionLag]:
    return {(row.cluster, row.consumer, label_value(each.topic), str(each.partition)): each for each in partitions}


def topic_families(listed: ListedPartitions) -> Iterator[ListedFamily]:
    """The lag by topic, for groups with a recent complete list of their partitions."""
    metric = telemetry.CONSUMER_TOPIC_LAG
    yield ListedFamily(metric, (sample(metric, values, lag) for values, lag in listed.topic_lags.items()))


def partition_families(listed: ListedPartitions) -> Iterator[ListedFamily]:
    lag, code, partitions = telemetry.PARTITION_LAG, telemetry.PARTITION_STATUS_CODE, listed.partitions
    lags = ((values, each.current_lag) for values, each in partitions.items())
    yield ListedFamily(lag, (sample(lag, values, value) for values, value in lags if value is not None))
    codes = ((values, each.status) for values, each in partitions.items() if each.status in _PARTITION_STATUSES)
    yield ListedFamily(code, (sample(code, values, status.value) for values, status in codes))
