"""Copies an event log to another place: from SQLite to PostgreSQL, and back.

The copy has the same id, events with the same numbers, and the same state. So reporters continue at their cursors. Each
portion of events is committed before the next one. The state comes last, in one transaction that also lets Karrot use
the copy: it must be that of the newest event, and it changes as long as a Karrot runs. A copy that was interrupted at
any point continues after the newest event that the target has.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from karrot.clock import Clock
from karrot.eventlog import rows
from karrot.eventlog.base import READ_LIMIT, LogUnavailableError
from karrot.eventlog.copied_tables import EVENTS, GROUPS, STATE, CopiedTable, CopySource, CopyTarget, LogHead
from karrot.eventlog.opening import database_of_settings
from karrot.eventlog.rows import Row
from karrot.eventlog.sql_log import Limits
from karrot.eventlog.sqlite.row_copy import SqliteCopySource, SqliteCopyTarget
from karrot.settings.options import Settings
from karrot.text import visible

_STOP_IT = "stop it, or copy its events while it runs with --in-advance"


class UnfinishedCopyError(LogUnavailableError):
    """A copy began and did not end. The same call continues it."""


class CopyProgress(NamedTuple):
    """How far a copy is: the events that this call has copied, and those that it has to copy."""

    copied: int
    total: int
    seconds: float


@dataclass(slots=True)
class CopyResult:
    """What one call copied. ``is_finished`` says that Karrot can use the target.

    ``damaged`` counts the copied rows with a wrong checksum, by table. ``left_out`` counts the rows that not every
    database can hold, by table: a damaged row without a checksum, or one whose name is too long.
    ``left_out_groups`` names such groups, by the beginnings of their names.
    """

    head: LogHead
    last_seq: int
    """The newest event that the target has, or 0."""
    copied: int = 0
    seconds: float = 0.0
    is_finished: bool = False
    was_finished: bool = False
    damaged: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    left_out_groups: list[str] = field(default_factory=list)


def open_source(settings: Settings, clock: Clock, *, in_advance: bool) -> CopySource:
    """Open the log that is copied. Without ``in_advance``, the log must not be in use.

    Raises `LogUnavailableError`.
    """
    in_use = None if in_advance else _STOP_IT
    if not settings.is_on_postgresql:
        return SqliteCopySource.open(settings.data_dir, clock, in_use=in_use)
    database = database_of_settings(settings)
    from karrot.eventlog.postgres.row_copy import PostgresCopySource  # noqa: PLC0415 - the driver is an extra

    return PostgresCopySource(database, in_use=in_use)


def open_target(settings: Settings, clock: Clock) -> CopyTarget:
    """Open the log that is written, and keep every Karrot away from it. Raises `LogUnavailableError`."""
    if not settings.is_on_postgresql:
        return SqliteCopyTarget(settings.data_dir, clock)
    database = database_of_settings(settings)
    from karrot.eventlog.postgres.row_copy import PostgresCopyTarget  # noqa: PLC0415 - the driver is an extra

    limits = Limits(retention_ms=settings.retention * 1000, max_bytes=settings.max_log_bytes)
    return PostgresCopyTarget(database, limits)


def copy_log(
    source: CopySource, target: CopyTarget, *, in_advance: bool, tell: Callable[[CopyProgress], object]
) -> CopyResult:
    """Copy a log, or continue an interrupted copy. With ``in_advance``, copy only the events that are there now.

    Raises `LogUnavailableError` if the target refuses the copy, and `UnfinishedCopyError` if the copy did not end.
    """
    head = source.head()
    had = target.begin(head)
    if had is None:
        return CopyResult(head, head.last_seq, is_finished=True, was_finished=True)
    _refuse_another_past(source, target, head, had)
    result = CopyResult(head, had)
    try:
        left = _copy_events(source, target, result, tell)
        while in_advance and left >= READ_LIMIT:  # what the source has taken meanwhile, until little is left
            left = _copy_events(source, target, result, tell)
        if not in_advance:
            result.head = _copy_state(source, target, result)
            result.is_finished = True
    except LogUnavailableError as error:
        raise UnfinishedCopyError(f"the copy is unfinished: {error}. The same command continues it") from error
    return result


def _copy_events(
    source: CopySource, target: CopyTarget, result: CopyResult, tell: Callable[[CopyProgress], object]
) -> int:
    """Copy the events up to ``result.head``, and read the head again. Returns how many events are left to copy."""
    began, before_s, last = time.monotonic(), result.seconds, result.head.last_seq
    position = max(result.last_seq, result.head.first_seq - 1)
    total = result.copied + last - position
    while position < last and (page := source.events(position)):
        events = list(_fitted(EVENTS, page, result))
        result.damaged[EVENTS.name] += sum(rows.stored_body(row[: len(rows.EVENT_FIELDS)]) is None for row in events)
        target.add(events)
        position = result.last_seq = page[-1][0]
        result.copied += len(events)
        result.seconds = before_s + time.monotonic() - began
        tell(CopyProgress(result.copied, total, result.seconds))
    result.head = source.head()
    return result.head.last_seq - max(position, last)


def _copy_state(source: CopySource, target: CopyTarget, result: CopyResult) -> LogHead:
    """Copy everything except the events, as it is at the newest event, and let Karrot use the target."""
    with source.snapshot():
        head = source.head()
        if source.events(max(result.last_seq, head.first_seq - 1), 1):
            raise LogUnavailableError(_TAKES_EVENTS)
        target.fill(head, ((table, _rows_of(source, table, result)) for table in STATE))
    if source.head()._replace(log_ms=0) != head._replace(log_ms=0):
        raise LogUnavailableError(_TAKES_EVENTS)
    target.publish()
    return head._replace(groups=head.groups - result.left_out[GROUPS.name])


_TAKES_EVENTS = "a Karrot has written to the source during the copy: stop every Karrot that uses it"


def _rows_of(source: CopySource, table: CopiedTable, result: CopyResult) -> Iterator[Sequence[Row]]:
    for portion in source.rows(table):
        fitted = list(_fitted(table, portion, result))
        if table is GROUPS:
            result.damaged[table.name] += sum(rows.group_of(row[: len(rows.GROUP_FIELDS)]) is None for row in fitted)
        if fitted:
            yield fitted


def _fitted(table: CopiedTable, portion: Sequence[Row], result: CopyResult) -> Iterator[Row]:
    for row in portion:
        fitted = table.fitted(row)
        if fitted is None:
            result.left_out[table.name] += 1
            if table is GROUPS:
                cluster, consumer = (visible(name.decode(errors="replace")) for name in row[:2])
                result.left_out_groups.append(f"{consumer} in {cluster}")
        else:
            yield fitted


def _refuse_another_past(source: CopySource, target: CopyTarget, head: LogHead, had: int) -> None:
    """Refuse a source that was set back since the copy began, for example to a backup: its events would not follow."""
    newest = target.newest()
    if newest is None:
        return
    same = source.events(had - 1, 1)
    is_other = same and same[0][0] == had and tuple(EVENTS.fitted(same[0]) or ()) != tuple(newest)
    if had > head.last_seq or is_other:
        raise LogUnavailableError(
            f"the target has event {had} of this log, but the source has "
            f"{'another event with this number' if is_other else f'only events up to {head.last_seq}'}: the source was "
            "set back since the copy began. Remove the unfinished copy, and run the command again"
        )
