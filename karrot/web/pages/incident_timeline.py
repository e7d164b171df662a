"""Makes the timeline of a group's open incident, or of its last one, from the stored events and the mutes. No I/O."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from karrot.event import Kind, Source
from karrot.eventlog.base import EventSummary, GroupState
from karrot.mutes import Mute

BEFORE_MS = 600_000
"""Rebalances and lost members up to ten minutes before the incident belong to its timeline."""

_NO_INCIDENT = frozenset({Kind.OBSERVATION, Kind.CLOSE, Kind.DELETED})
_TOGETHER_MS = 300_000
_MOST = 25


class Moment(NamedTuple):
    """What happened at a time. A ``churn`` (rebalances, other members) has the event before it and its last event."""

    at_ms: int
    what: str
    of: EventSummary | Mute | tuple[EventSummary, EventSummary]


def timeline(events: Sequence[EventSummary], state: GroupState, mutes: Iterable[Mute], now_ms: int) -> Sequence[Moment]:
    """Make the timeline from a group's events, oldest first, and all mutes. Empty without an incident."""
    own = [each for each in events if (each.source is Source.KAFKA) == (state.summary.source is Source.KAFKA)]
    last = next((n for n in reversed(range(len(own))) if own[n].kind not in _NO_INCIDENT), None)
    if last is None:
        return []
    first = next((n + 1 for n in reversed(range(last)) if own[n].kind in _NO_INCIDENT), 0)
    began_ms, end = own[first].observed_at_ms, own[last + 1] if last + 1 < len(own) else None
    since_ms = None if end else state.incident.since_ms
    # "known": the incident may have begun before the oldest event
    opened = Moment(min(began_ms, since_ms or began_ms), "opened" if first or since_ms else "known", own[first])
    of_group = [each for each in mutes if each.names(state.key) and each.until_ms > opened.at_ms - BEFORE_MS]
    found = [opened, *_worse(own[first : last + 1]), *_muted(of_group, end.observed_at_ms if end else now_ms, now_ms)]
    if end is not None:
        found.append(Moment(end.observed_at_ms, "deleted" if end.kind is Kind.DELETED else "recovered", end))
    near = [each for each in own[: last + 2] if each.observed_at_ms >= began_ms - BEFORE_MS]
    found += _churn(near, [each.at_ms for each in found])
    found.sort(key=lambda each: each.at_ms)
    return found if len(found) <= _MOST else [found[0], *found[1 - _MOST :]]


def _worse(events: Sequence[EventSummary]) -> Iterable[Moment]:
    """The events with a worse status than before, or with twice as many bad partitions."""
    worst = events[0]
    for each in events[1:]:
        if (each.status or 0) > (worst.status or 0) or each.bad_partitions >= 2 * max(1, worst.bad_partitions):
            yield Moment(each.observed_at_ms, "worse", each)
            worst = each


def _churn(events: Sequence[EventSummary], cuts: Sequence[int]) -> Iterable[Moment]:
    """The rebalances and changes of members. Those within five minutes are one moment, if nothing else is between."""
    runs: list[list[EventSummary]] = []
    for before, now in pairwise(each for each in events if each.members is not None and each.rebalances is not None):
        if before.members == now.members and (now.rebalances or 0) <= (before.rebalances or 0):
            continue
        last_ms, at_ms = runs[-1][-1].observed_at_ms if runs else 0, now.observed_at_ms
        if at_ms - last_ms > _TOGETHER_MS or any(last_ms < cut <= at_ms for cut in cuts):
            runs.append([before])
        runs[-1].append(now)
    return [Moment(run[1].observed_at_ms, "churn", (run[0], run[-1])) for run in runs]


def _muted(mutes: Iterable[Mute], last_ms: int, now_ms: int) -> Iterable[Moment]:
    for mute in mutes:
        if (since_ms := round(mute.since.timestamp() * 1000)) <= last_ms:
            yield Moment(since_ms, "muted", mute)
            if mute.until_ms <= now_ms:
                yield Moment(mute.until_ms, "unmuted", mute)
