"""Makes the metrics of each consumer group, and of its topics and partitions.

Some metrics come from verdicts, and some from the data that ``karrot watch`` reads from Kafka. The metrics by topic and
by partition are opt-in, because each scrape must read events of each group for them. Burrow's REST API and Kafka list
all partitions. A webhook lists only the partitions worse than OK and the partition with the largest lag. These
partitions replace those of the newest complete list. The lag of a topic comes only from the complete list.

With 10,000 groups, nearly the whole answer is metrics of groups. So this module writes their lines directly from the
log's values, escapes labels once per group, and creates no object for a sample.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import NamedTuple

from karrot import telemetry
from karrot.event import ABANDONED, AgeKind, GroupKey, PartitionLag, Status
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import GroupState
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.next_group_state import BAD_STATUSES
from karrot.eventlog.watch_data_of_groups import STATES, GroupHealth
from karrot.telemetry import Metric

MAX_LENGTH = 512
"""The maximum length of a label value in characters."""

_DIGEST = 8


def label_value(name: str) -> str:
    """The label value of a name. NUL becomes U+FFFD. A long name is cut, and ends in ``~`` and part of its SHA-256."""
    clean = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(clean) <= MAX_LENGTH:
        return clean
    return f"{clean[: MAX_LENGTH - _DIGEST - 1]}~{opaque(name)}"


def opaque(name: str) -> str:
    """Hash a machine's name to eight hex digits, because ``/metrics`` may be readable without credentials."""
    return sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGEST]


def escaped(value: str) -> str:
    """Escape a label value for both text formats, without the quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Family(NamedTuple):
    """One declared metric with its samples at one time. A piece has one or more lines, valid in both text formats."""

    metric: Metric
    pieces: Iterable[str]


def family(metric: Metric, samples: Iterable[tuple[Iterable[str], float | None]]) -> Family:
    """Make a family from pairs of label values and sample value. ``None`` as the value means no sample."""
    known = ((zip(metric.labels, values, strict=True), value) for values, value in samples if value is not None)
    return Family(metric, [line(metric.name, labels, value) for labels, value in known])


def by_label(metric: Metric, values: Mapping[str, float | None]) -> Family:
    return family(metric, (((label,), value) for label, value in values.items()))


def one(metric: Metric, value: float | None) -> Family:
    return family(metric, [((), value)])


def line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    text = ",".join(f'{label}="{escaped(of)}"' for label, of in sorted(labels))
    return f"{name}{{{text}}} {value}\n" if text else f"{name} {value}\n"


MOST_PARTITIONS = 100_000
"""The most partitions in one answer. Each partition costs about 20 microseconds and 1.5 kB."""

_ROWS_PER_PIECE = 1000
_GROUP_STATUSES = (Status.OK, Status.WARN, Status.ERR)
_PARTITION_STATUSES = (Status.OK, Status.WARN, Status.STOP, Status.STALL, Status.REWIND)
_ASKED_FIRST = (
    telemetry.CONSUMER_LAG,
    telemetry.CONSUMER_LAG_SECONDS,
    telemetry.CONSUMER_SCALABLE_LAG,
    telemetry.CONSUMER_STATUS_CODE,
)
_OF_ABANDONED = (telemetry.CONSUMER_LAG, telemetry.CONSUMER_SCALABLE_LAG, telemetry.CONSUMER_LAST_EVENT)
"""The metrics that an abandoned group keeps, because services scale up from zero by these metrics."""


class MetricNameQuery(NamedTuple):
    """A query for a metric, which the user can copy. ``where`` is the query language."""

    where: str
    text: str


def promql_queries(cluster: str, consumer: str) -> list[MetricNameQuery]:
    labels = f'cluster="{promql_text(cluster)}",consumer="{promql_text(consumer)}"'
    return [MetricNameQuery("PromQL", f"{metric.name}{{{labels}}}") for metric in _ASKED_FIRST]


def promql_text(name: str) -> str:
    """Escape a label value for PromQL, without the quotes. Invisible characters are also escaped."""
    text = escaped(label_value(name))
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


class ExportedGroup(NamedTuple):
    """A group and the label values under which it is exported.

    ``text`` has the labels as written in a line. ``values`` has the written values of `_COLUMNS`.
    """

    cluster: str
    consumer: str
    text: str
    state: GroupState
    values: tuple[str | None, ...]


def labels_of(key: GroupKey) -> str:
    """The labels of a group as written in a line."""
    cluster, consumer = map(label_value, key)
    return f'cluster="{escaped(cluster)}",consumer="{escaped(consumer)}"'


def row_of(state: GroupState, shown: GroupState) -> ExportedGroup:
    """Make the row of a group, with the values of the state ``shown``."""
    cluster, consumer = map(label_value, state.key)
    is_abandoned = shown.summary.status_text == ABANDONED
    values = (of(shown) if not is_abandoned or metric in _OF_ABANDONED else None for metric, _, of in _COLUMNS)
    texts = tuple(None if value is None else f"{value}" for value in values)
    return ExportedGroup(cluster, consumer, labels_of(state.key), state, texts)


def group_families(rows: Sequence[ExportedGroup]) -> Iterator[Family]:
    """Every metric family about consumer groups, in the order of `karrot.telemetry.METRICS`."""
    values = list(zip(*(row.values for row in rows), strict=True)) or [()] * len(_COLUMNS)
    for metric, columns in groupby(zip(_COLUMNS, values, strict=True), key=lambda column: column[0][0]):
        yield Family(metric, _pieces(metric, rows, [(status, texts) for (_, status, _), texts in columns]))


def _pieces(
    metric: Metric, rows: Sequence[ExportedGroup], columns: Sequence[tuple[Status | None, Sequence[str | None]]]
) -> Iterator[str]:
    for status, values in columns:
        tail = "}" if status is None else f',status="{status.name}"}}'
        for start in range(0, len(rows), _ROWS_PER_PIECE):
            part = slice(start, start + _ROWS_PER_PIECE)
            yield "".join(
                [
                    f"{metric.name}{{{row.text}{tail} {value}\n"
                    for row, value in zip(rows[part], values[part], strict=True)
                    if value is not None
                ]
            )


Value = Callable[[GroupState], float | None]


def _status_code(state: GroupState) -> Status | None:
    """The status, or ``None`` if a group cannot have this status."""
    return state.summary.status if state.summary.status in _GROUP_STATUSES else None


def _is_status(status: Status) -> Value:
    return lambda state: None if _status_code(state) is None else int(state.summary.status is status)


def _bad_partitions(index: int) -> Value:
    return lambda state: state.summary.bad[index]


def _at_least(state: GroupState) -> float | None:
    signals = state.summary.signals
    return signals.lag_seconds if signals.lag_seconds_kind == AgeKind.AT_LEAST else None


def _complete_ratio(state: GroupState) -> float | None:
    complete = state.summary.complete
    if complete is None or not 0 <= complete <= 1:
        return None
    return abs(complete)  # -0.0 is not below 0, but would be written as "-0.0"


def _seconds(at_ms: int | None) -> float | None:
    """Convert epoch milliseconds to seconds. Returns ``None`` for an invalid time before 1970 from a body."""
    return at_ms / 1000 if at_ms is not None and at_ms > 0 else None


def _incident_start(state: GroupState) -> float | None:
    return None if state.incident.open_id is None else _seconds(state.incident.since_ms)


_COLUMNS: tuple[tuple[Metric, Status | None, Value], ...] = (
    (telemetry.CONSUMER_LAG, None, lambda state: state.summary.total_lag),
    (telemetry.CONSUMER_MAX_LAG, None, lambda state: state.summary.max_lag),
    (telemetry.CONSUMER_SCALABLE_LAG, None, lambda state: state.summary.signals.scalable_lag),
    (telemetry.CONSUMER_LAG_SECONDS, None, lambda state: state.summary.signals.lag_seconds),
    (telemetry.CONSUMER_LAG_SECONDS_AT_LEAST, None, _at_least),
    (telemetry.CONSUMER_LAG_SECONDS_KIND, None, lambda state: state.summary.signals.lag_seconds_kind),
    (telemetry.CONSUMER_CATCH_UP_SECONDS, None, lambda state: state.summary.signals.catch_up_seconds),
    (telemetry.CONSUMER_PRODUCE_RATE, None, lambda state: state.summary.signals.produce_rate),
    (telemetry.CONSUMER_CONSUME_RATE, None, lambda state: state.summary.signals.consume_rate),
    *((telemetry.CONSUMER_STATUS, status, _is_status(status)) for status in _GROUP_STATUSES),
    (telemetry.CONSUMER_STATUS_CODE, None, _status_code),
    (telemetry.CONSUMER_PARTITIONS, None, lambda state: state.summary.partition_count),
    *((telemetry.CONSUMER_BAD_PARTITIONS, status, _bad_partitions(at)) for at, status in enumerate(BAD_STATUSES)),
    (telemetry.CONSUMER_COMPLETE_RATIO, None, _complete_ratio),
    (telemetry.CONSUMER_LAST_EVENT, None, lambda state: _seconds(state.summary.observed_at_ms)),
    (telemetry.CONSUMER_LAST_COMMIT, None, lambda state: _seconds(state.summary.last_commit_ms)),
    (telemetry.CONSUMER_INCIDENT_START, None, _incident_start),
    (telemetry.CONSUMER_INCIDENTS, None, lambda state: state.incident.total),
)
"""The columns of every row: metric, label ``status``, and a function for the value. ``None`` means no sample."""

_WATCHED: tuple[tuple[Metric, Callable[[GroupHealth], float | None]], ...] = (
    (telemetry.CONSUMER_MEMBERS, lambda group: group.members),
    (telemetry.CONSUMER_COORDINATOR, lambda group: group.coordinator),
    (telemetry.CONSUMER_REBALANCES, lambda group: group.rebalances),
    (telemetry.CONSUMER_MESSAGES_LOST, lambda group: group.messages_lost),
    (telemetry.CONSUMER_RETENTION_MARGIN, lambda group: group.retention_margin),
    (telemetry.CONSUMER_BEYOND_END, lambda group: group.beyond_end),
    (telemetry.CONSUMER_UNCOMMITTED, lambda group: group.uncommitted),
    (telemetry.CONSUMER_OPEN_TRANSACTION, lambda group: group.open_transactions),
)


def second_opinions(rows: Sequence[ExportedGroup], now_ms: int) -> Family:
    found = ((row, row.state.second_opinion(now_ms)) for row in rows)
    labels = ((row.cluster, row.consumer, one.source.value, label_value(one.status_text)) for row, one in found if one)
    return family(telemetry.CONSUMER_SECOND_OPINION, ((each, 1) for each in labels))


def watched_families(log: EventLog, excludes: Callable[[str], bool]) -> Iterator[Family]:
    """The families from the last poll of `watch`: the poll's time and duration, and the groups of a recent poll."""
    poll = watch_data_of_groups.read(log)
    cluster = () if poll is None else (label_value(poll.cluster),)
    rows: dict[tuple[str, ...], GroupHealth] = {}
    abandoned = None
    if poll is not None and log.log_time_ms() - poll.log_time_ms <= poll.good_for_ms:
        named = ((label_value(group.consumer), group) for group in poll.groups if not group.abandoned)
        rows = {(*cluster, consumer): group for consumer, group in named if not excludes(consumer)}
        abandoned = sum(group.abandoned for group in poll.groups)
    yield by_label(telemetry.WATCH_ABANDONED, dict.fromkeys(cluster, abandoned))
    states = (((*labels, state), int(group.state == state)) for labels, group in rows.items() for state in STATES)
    yield family(telemetry.CONSUMER_GROUP_STATE, states)
    for metric, value_of in _WATCHED:
        yield family(metric, [(labels, value_of(group)) for labels, group in rows.items()])
    # Before the first answer from Kafka, there is no duration, and the time is 0.
    polled = poll if poll and poll.polled_at_ms else None
    at_ms = log.wall_ms_at(polled.log_time_ms) if polled else 0
    yield by_label(telemetry.WATCH_LAST_POLL, dict.fromkeys(cluster, at_ms / 1000))
    yield by_label(telemetry.WATCH_POLL_SECONDS, dict.fromkeys(cluster, polled.poll_seconds if polled else None))


Place = tuple[str, str, str, str]
"""The label values of a cluster, a consumer, a topic and a partition."""


def partition_families(
    log: EventLog, rows: Sequence[ExportedGroup], *, by_topic: bool, by_partition: bool
) -> tuple[list[Family], int]:
    """Return the families by topic and by partition, and the number of groups that exceed `MOST_PARTITIONS`.

    The lag of a topic is the sum over one recent and complete list of its partitions.
    """
    partitions: dict[Place, PartitionLag] = {}
    topic_lags: dict[tuple[str, str, str], int] = {}
    left_out = read = 0
    # The largest groups come last, so that one does not displace many small groups. The sender's sizes can be wrong.
    judged = (row for row in rows if row.state.summary.status_text != ABANDONED)
    by_size = sorted(judged, key=lambda row: row.state.summary.partition_count or 0)
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
    families = [family(telemetry.CONSUMER_TOPIC_LAG, topic_lags.items())] if by_topic else []
    if by_partition:
        families.append(family(telemetry.PARTITION_LAG, ((of, each.current_lag) for of, each in partitions.items())))
        statuses = ((of, each.status) for of, each in partitions.items() if each.status in _PARTITION_STATUSES)
        families.append(family(telemetry.PARTITION_STATUS_CODE, statuses))
    return families, left_out


def _by_place(row: ExportedGroup, partitions: Iterable[PartitionLag]) -> dict[Place, PartitionLag]:
    return {(row.cluster, row.consumer, label_value(each.topic), str(each.partition)): each for each in partitions}
