"""Makes the JSON bodies of the API from the event log's types."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from karrot import mutes
from karrot.api import bodies
from karrot.event import ABANDONED, LEFT, NO_PROBLEM, GroupKey, OffsetSample, PartitionLag, Source
from karrot.eventlog.base import GroupState, Listed, Reject, ReporterState, StoredEvent, StoredSummary
from karrot.eventlog.event_log import EventLog
from karrot.reporters.base import REPORT_NOTE, backlog, read_report
from karrot.text import instant
from karrot.web.context import WebContext, if_readable

_Recent = Sequence[StoredSummary] | None
_FOUND = {LEFT: "the group has left the topic", ABANDONED: "the group is abandoned"}


def mute_finder(context: WebContext) -> Callable[[GroupKey], mutes.Mute | None]:
    """Read all mutes, and return a function that finds a group's mute. No mute is found if the log cannot be read."""
    known = if_readable(partial(mutes.read, context.log), [])
    return mutes.finder(known, context.clock.wall_ms())


def group_shape(state: GroupState, muted: mutes.Mute | None, cut_off: Collection[str]) -> bodies.Group:
    """Make the body of a group without its partitions."""
    return bodies.Group(**_group_fields(state, cut_off), muted=muted)


def group_detail(
    state: GroupState, muted: mutes.Mute | None, cut_off: Collection[str], listed: Listed | None, recent: _Recent
) -> bodies.GroupDetail:
    """Make the body of a group with all details. An unreadable part is ``None``."""
    is_old = state.has_old_lag(cut_off)
    event, complete = (listed.newest.event, listed.complete) if listed else (None, None)
    partitions = listed.partitions if listed and complete and complete.seq != state.seq else event and event.partitions
    return bodies.GroupDetail(
        **_group_fields(state, cut_off),
        muted=muted,
        partitions=None if partitions is None else [_partition_shape(one, is_old=is_old) for one in partitions],
        all_partitions_listed=complete is not None or state.summary.source is not Source.WEBHOOK,
        partitions_listed_at=instant(complete.event.observed_at_ms if complete else None),
        second_opinion=second_opinion(listed),
        max_lag_partition=_partition_shape(event.max_lag, is_old=is_old) if event and event.max_lag else None,
        events=None if recent is None else [event_shape(stored) for stored in recent],
    )


def second_opinion(listed: Listed | None) -> bodies.SecondOpinion | None:
    """Summarize the other source's verdict on the partitions that are bad in the newest event."""
    if listed is None or listed.second is None:
        return None
    other, own = listed.second.event, listed.newest.event.partitions
    bad = {(each.topic, each.partition) for each in own if each.status_text not in NO_PROBLEM}
    found: Counter[str] = Counter()
    for each in other.partitions:
        if (each.topic, each.partition) in bad:
            lag, first = each.current_lag, each.first_unread
            words = f"{each.status_text} with {'unknown lag' if lag is None else f'lag {lag}'}"
            is_read = first is not None and first.written_ms is None and not lag
            found["nothing to read" if is_read else _FOUND.get(each.status_text, words)] += 1
    words = ", ".join(f"{words} ({number})" for words, number in found.items())
    return bodies.SecondOpinion(other.source.value, other.shown_status, instant(other.observed_at_ms), words)


def event_shape(stored: StoredSummary) -> bodies.GroupEvent:
    summary = stored.summary
    return bodies.GroupEvent(
        event_id=stored.event_id,
        observed_at=instant(summary.observed_at_ms),
        received_at=instant(summary.received_at_ms),
        source=summary.source.value,
        kind=summary.kind.value,
        status=summary.reported_status,
        lag=summary.total_lag,
        max_lag=summary.max_lag,
        bad_partitions=summary.bad_partitions,
        incident_id=summary.incident_id,
    )


def reject_shape(reject: Reject) -> bodies.RejectedBody:
    body = reject.body.decode(errors="replace")
    return bodies.RejectedBody(instant(reject.received_at_ms), reject.code, reject.detail, reject.source.value, body)


def event_log_status(log: EventLog) -> bodies.EventLogStatus:
    """Make the status of a log. Raises `LogUnavailableError` if the log cannot be read and no state is in memory."""
    size, age_ms = log.size(), log.memory_age_ms()
    return bodies.EventLogStatus(
        log_id=log.log_id,
        events=size.events,
        bytes=size.bytes,
        replica=log.replica,
        leader=log.leader(),
        fault=log.writable(),
        memory_age_seconds=None if age_ms is None else age_ms / 1000,
        database=log.database(),
    )


def progress(context: WebContext) -> list[bodies.ReporterProgress]:
    """Make the progress of each reporter that is on, in the order of the settings."""
    log = context.log
    kept, size = {state.name: state for state in log.reporters()}, log.size()
    found = []
    for name in context.reporters:
        state = kept.get(name) or ReporterState(name, None)
        behind = backlog(log, state, size) if name in kept else None
        found.append(
            bodies.ReporterProgress(
                name=name,
                state=state.state,
                cursor=bodies.Place(*state.cursor) if state.cursor else None,
                backlog_events=behind.events if behind else None,
                backlog_age_seconds=behind.age_s if behind else None,
                last_success_at=instant(state.last_success_ms),
                last_error=state.last_error,
                last_error_at=instant(state.last_error_ms),
                last_send=read_report(if_readable(partial(log.recall, name, REPORT_NOTE), None)),
            )
        )
    return found


def last_event(context: WebContext, name: str) -> StoredEvent | None:
    """Read the newest event that a reporter has handled. For a pull reporter, read the newest event of the log."""
    state = next((state for state in context.log.reporters() if state.name == name), None)
    if state is None:
        return context.log.event(context.log.size().last_seq)
    return context.log.event(state.cursor.seq) if state.cursor else None


def _group_fields(state: GroupState, cut_off: Collection[str]) -> dict[str, Any]:
    is_old, state = state.has_old_lag(cut_off), state.without_old_lag(cut_off)
    summary, opened = state.summary, state.incident.open_id
    signals = summary.signals
    kind, oldest = signals.lag_seconds_kind, signals.lag_seconds_partition
    return {
        "cluster": state.key.cluster,
        "consumer": state.key.consumer,
        "status": summary.status_text,
        "status_code": summary.status,
        "lag": summary.total_lag,
        **{name: getattr(summary, name) for name in ("max_lag", "max_lag_topic", "partition_count", "complete")},
        **signals._asdict(),
        "lag_seconds_kind": None if kind is None else kind.name.lower(),
        "lag_seconds_topic": None if oldest is None else oldest.topic,
        "lag_seconds_partition": None if oldest is None else oldest.partition,
        "bad_partitions": bodies.BadPartitions(
            *summary.bad, (summary.beyond_end or (0,))[0], summary.never_committed, summary.open_transactions
        ),
        "kind": summary.kind.value,
        "source": summary.source.value,
        "observed_at": instant(summary.observed_at_ms),
        "last_event_at": instant(summary.received_at_ms),
        "last_commit_at": instant(summary.last_commit_ms),
        "incident": opened if opened is None else bodies.OpenIncident(opened, instant(state.incident.since_ms)),
        "incidents_total": state.incident.total,
        "burrow_cut_off": is_old,
    }


def _partition_shape(partition: PartitionLag, *, is_old: bool) -> bodies.Partition:
    partition = partition._replace(current_lag=None) if is_old else partition
    return bodies.Partition(
        topic=partition.topic,
        partition=partition.partition,
        status=partition.status_text,
        lag=partition.current_lag,
        lag_at_most=partition.at_most,
        log_start_offset=partition.log_start,
        log_end_offset=partition.log_end_offset,
        start=_commit_shape(partition, partition.start),
        end=_commit_shape(partition, partition.end),
        owner=partition.owner,
        client_id=partition.client_id,
        complete=partition.complete,
    )


def _commit_shape(partition: PartitionLag, sample: OffsetSample | None) -> bodies.Commit | None:
    if sample is None:
        return None
    committed_at, observed_at = instant(partition.committed_at_ms(sample)), instant(sample.observed_at_ms)
    return bodies.Commit(sample.offset, sample.timestamp_ms, committed_at, sample.lag, observed_at)
