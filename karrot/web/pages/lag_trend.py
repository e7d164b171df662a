"""Reads a group's newest events, without their partitions, and tells whether its lag rises or falls."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from karrot.burrow.payload import Outline, parse_outline
from karrot.burrow.wire import MalformedPayload
from karrot.event import GroupKey, Kind, Source
from karrot.eventlog.base import Events, GroupState, StoredBody
from karrot.signals import signals_of
from karrot.web.pages.value_cache import VersionedCache

TRAIL_LENGTH = 30
"""The newest marks of a group that its trend and the sparkline of its row are made of."""

_TREND_MARKS = 5
_SLOW_MARKS = 15
_ALONG_A_LINE = 0.9
"""The part of the lags' variance that a line explains if they go along it; lags that scatter stay far below."""

_STEADY = 0.15
"""The part of its recent peak by which a lag may change and still count as steady."""

_SMALL_LAG = 20


class Mark(NamedTuple):
    """One event of a group, its partitions left out. Lags are messages, ``lag_seconds`` is of the worst partition."""

    seq: int
    at_ms: int
    received_at_ms: int
    source: Source
    kind: Kind
    status_text: str
    lag: int | None
    max_lag: int | None
    lag_seconds: float | None
    bad_partitions: int


class Trend(NamedTuple):
    """Where a lag is going: ``growing``, ``shrinking`` or ``steady``, and by how many messages a second."""

    word: str
    per_second: float


class _Line(NamedTuple):
    """A straight line through lags: messages a second, messages from its first mark to its last, and how well it fits.

    ``explained`` is the part of the lags' variance, 0 to 1.
    """

    slope: float
    change: float
    explained: float


class Trails:
    """The last ``length`` marks of up to ``groups`` groups, kept by the process that serves pages.

    A group without new events costs nothing; of others only the new events are read. Any thread may ask.
    """

    def __init__(self, length: int = TRAIL_LENGTH, groups: int = 1000) -> None:
        self._length = length
        self._trails: VersionedCache[tuple[str, GroupKey], Sequence[Mark]] = VersionedCache(groups)

    def of(self, log: Events, state: GroupState) -> Sequence[Mark]:
        """The newest marks of a group, oldest first."""
        return self._trails.get((log.log_id, state.key), state.seq, lambda before: self._grown(log, state.key, before))

    def _grown(self, log: Events, key: GroupKey, before: Sequence[Mark] | None) -> Sequence[Mark]:
        after = before[-1].seq if before else 0
        return [*(before or ()), *marks(log, key, self._length, after)][-self._length :]


def marks(log: Events, key: GroupKey, limit: int, after: int = 0) -> list[Mark]:
    """The newest marks of a group behind number ``after``, oldest first."""
    found = []
    for stored in log.bodies(key, limit, after):
        try:
            outline = parse_outline(stored.body, observed_at_ms=stored.observed_at_ms, source=stored.source)
        except MalformedPayload:  # of a newer Karrot: a gap in a picture
            continue
        found.append(_mark(stored, outline))
    return found[::-1]


def trend(trail: Sequence[Mark]) -> Trend | None:
    """The slope of the newest lags by least squares; ``None`` if there are too few of them.

    A fast change shows in these. A change that is slow compared with the lag's size, as when a consumer was down all
    night, shows only in more of them: it is no scatter if they lie along one line, which the newest still follow.
    """
    newest = _line(trail[-_TREND_MARKS:])
    if newest is None:
        return None
    peak = max((mark.lag for mark in trail if mark.lag is not None), default=0)
    if abs(newest.change) < max(_SMALL_LAG, _STEADY * peak) and not _keeps_on(newest, _line(trail[-_SLOW_MARKS:])):
        return Trend("steady", newest.slope)
    return Trend("growing" if newest.change > 0 else "shrinking", newest.slope)


def _keeps_on(newest: _Line, longer: _Line | None) -> bool:
    """Whether the newest lags go on along the line on which those before them lie."""
    if longer is None or abs(longer.change) < _SMALL_LAG or longer.explained < _ALONG_A_LINE:
        return False
    return newest.change * longer.change > 0


def _line(trail: Sequence[Mark]) -> _Line | None:
    """The line through the lags by least squares; ``None`` through fewer than three, or if time stood still."""
    known = [(mark.at_ms / 1000, mark.lag) for mark in trail if mark.lag is not None]
    if len(known) < 3 or any(later[0] <= earlier[0] for earlier, later in pairwise(known)):  # noqa: PLR2004
        return None
    mean_at = sum(at for at, _ in known) / len(known)
    mean_lag = sum(lag for _, lag in known) / len(known)
    at_spread = sum((at - mean_at) ** 2 for at, _ in known)
    lag_spread = sum((lag - mean_lag) ** 2 for _, lag in known)
    slope = sum((at - mean_at) * (lag - mean_lag) for at, lag in known) / at_spread
    explained = slope**2 * at_spread / lag_spread if lag_spread else 0.0
    return _Line(slope, slope * (known[-1][0] - known[0][0]), explained)


def _mark(stored: StoredBody, outline: Outline) -> Mark:
    event = outline.event
    return Mark(
        stored.seq,
        stored.observed_at_ms,
        stored.received_at_ms,
        stored.source,
        event.kind,
        event.status_text,
        event.total_lag,
        event.max_lag.current_lag if event.max_lag else None,
        signals_of(event).lag_seconds,
        outline.bad_partitions,
    )
