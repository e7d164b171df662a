"""Make the metrics that only ``karrot watch`` can fill: what Kafka itself says of each group."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from karrot import telemetry
from karrot.eventlog import group_health
from karrot.eventlog.base import ReporterNotes
from karrot.eventlog.group_health import STATES, GroupHealth, WatchedCluster
from karrot.reporters.prometheus.families import ListedFamily, sample
from karrot.reporters.prometheus.labels import label_value
from karrot.telemetry import Metric

_VALUES: tuple[tuple[Metric, Callable[[GroupHealth], float | None]], ...] = (
    (telemetry.CONSUMER_MEMBERS, lambda group: group.members),
    (telemetry.CONSUMER_COORDINATOR, lambda group: group.coordinator),
    (telemetry.CONSUMER_REBALANCES, lambda group: group.rebalances),
    (telemetry.CONSUMER_MESSAGES_LOST, lambda group: group.messages_lost),
    (telemetry.CONSUMER_RETENTION_MARGIN, lambda group: group.retention_margin),
)

Rows = Mapping[tuple[str, str], GroupHealth]


def watched_families(log: ReporterNotes, excludes: Callable[[str], bool]) -> Iterator[ListedFamily]:
    """The groups, unless the poll is too long ago, and when it was."""
    polls = list(group_health.read(log))
    now_ms = log.log_time_ms()
    rows = {
        (label_value(poll.cluster), consumer): group
        for poll in polls
        if now_ms - poll.log_time_ms <= poll.good_for_ms
        for group in poll.groups
        if not excludes(consumer := label_value(group.consumer))
    }
    yield _states(rows)
    for metric, value_of in _VALUES:
        values = ((labels, value_of(group)) for labels, group in rows.items())
        yield ListedFamily(metric, (sample(metric, labels, value) for labels, value in values if value is not None))
    yield from _polls(polls)


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


def _polls(polls: Iterable[WatchedCluster]) -> Iterator[ListedFamily]:
    last, seconds = telemetry.WATCH_LAST_POLL, telemetry.WATCH_POLL_SECONDS
    clusters = [(label_value(poll.cluster), poll) for poll in polls]
    yield ListedFamily(last, (sample(last, (cluster,), poll.polled_at_ms / 1000) for cluster, poll in clusters))
    asked = ((cluster, poll) for cluster, poll in clusters if poll.polled_at_ms)
    yield ListedFamily(seconds, (sample(seconds, (cluster,), poll.poll_seconds) for cluster, poll in asked))
