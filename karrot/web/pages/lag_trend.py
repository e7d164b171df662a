"""Computes a group's lag trend from its newest events: whether the lag grows, shrinks or is steady."""

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
"""The number of a group's newest marks that its trend and its row's sparkline use."""

_TREND_MARKS = 5
_SLOW_MARKS = 15
_ALONG_A_LINE = 0.9
"""The least share of the lags' variance that a line must explain. For scattered lags, the share is far smaller."""

_STEADY = 0.15
"""A lag counts as steady if its change is less than this share of its recent peak."""

_SMALL_LAG = 20


class Mark(NamedTuple):
    """One event of a group, without its partitions. Lags are in messages. ``lag_seconds`` is the worst partition's."""

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
    """The direction of a lag (``growing``, ``shrinking`` or ``steady``) and its change in messages per second."""

    word: str
    per_second: float


class _Line(NamedTuple):
    """A straight line through lags.

    ``slope`` is in messages per second. ``change`` is the messages from the first mark to the last. ``explained`` is
    the share of the lags' variance that the line explains, from 0 to 1.
    """

    slope: float
    change: float
    explained: float


class Trails:
    """A cache of the last ``length`` marks of up to ``groups`` groups. Each process that serves pages has one.

    The cache reads only new events, so a group without new events costs nothing. Several threads may use the cache.
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
    """The newest marks of a group with sequence numbers above ``after``, oldest first."""
    found = []
    for stored in log.bodies(key, limit, after):
        try:
            outline = parse_outline(stored.body, observed_at_ms=stored.observed_at_ms, source=stored.source)
        except MalformedPayload:  # a newer Karrot wrote it: leave a gap in the chart
            continue
        found.append(_mark(stored, outline))
    return found[::-1]


def trend(trail: Sequence[Mark]) -> Trend | None:
    """The trend of the newest lags, by least squares. ``None`` if there are too few lags.

    The five newest lags show a fast change. A slow change is small compared with a large lag, for example after a
    consumer was down all night. Only the 15 newest lags show it. Such a change counts as a trend if these lags lie
    along one line and the newest lags still follow this line.
    """
    newest = _line(trail[-_TREND_MARKS:])
    if newest is None:
        return None
    peak = max((mark.lag for mark in trail if mark.lag is not None), default=0)
    if abs(newest.change) < max(_SMALL_LAG, _STEADY * peak) and not _keeps_on(newest, _line(trail[-_SLOW_MARKS:])):
        return Trend("steady", newest.slope)
    return Trend("growing" if newest.change > 0 else "shrinking", newest.slope)


def _keeps_on(newest: _Line, longer: _Line | None) -> bool:
    """Whether the newest lags continue the line of the lags before them."""
    if longer is None or abs(longer.change) < _SMALL_LAG or longer.explained < _ALONG_A_LINE:
        return False
    return newest.change * longer.change > 0


def _line(trail: Sequence[Mark]) -> _Line | None:
    """The line through the lags by least squares. ``None`` for fewer than three lags, or if times do not increase."""
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
        signals_of(event).with_age(stored.age).lag_seconds,
        outline.bad_partitions,
    )
