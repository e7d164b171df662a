"""Mutes groups for a time, with a reason: their alerts and messages are silent. The mutes are a note in the log."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from fnmatch import translate
from functools import lru_cache

import msgspec
import structlog

from karrot.event import GroupKey
from karrot.eventlog.event_log import EventLog
from karrot.text import EPOCH

NOTE = ("karrot mutes", "mutes")
"""The owner and the key of the note. No reporter has the owner's name."""

ENDED = ("karrot mutes", "ended")
"""The owner and the key of the note with the newest ended mutes, for timelines."""

MOST = 200

_any_of = lru_cache(2 * MOST)(lambda patterns: re.compile("|".join(map(translate, patterns))))
_log = structlog.get_logger(__name__)


class Mute(msgspec.Struct, frozen=True):
    """A mute of the groups in one cluster whose whole name matches ``pattern``, with ``*`` and ``?`` as in a shell."""

    id: str
    cluster: str
    pattern: str
    reason: str
    since: datetime
    until: datetime

    @property
    def until_ms(self) -> int:
        return round(self.until.timestamp() * 1000)

    def names(self, key: GroupKey) -> bool:
        return key.cluster == self.cluster and _any_of((self.pattern,)).match(key.consumer) is not None


def muted(log: EventLog, keys: Iterable[GroupKey], now_ms: int) -> dict[GroupKey, Mute]:
    """The muted groups among some, at a time of the wall clock. Raises `LogUnavailableError`."""
    mute_of = finder(read(log), now_ms)
    return {key: mute for key in keys if (mute := mute_of(key))}


def finder(mutes: Iterable[Mute], now_ms: int) -> Callable[[GroupKey], Mute | None]:
    """Return a function that finds the mute of a group that ends last. ``None`` if the group is not muted now.

    One pattern for each cluster finds the muted groups: 200 patterns for each of 50,000 groups took seconds.
    """
    lasting = sorted((mute for mute in mutes if mute.until_ms > now_ms), key=lambda mute: mute.until, reverse=True)
    patterns = {each.cluster: tuple(one.pattern for one in lasting if one.cluster == each.cluster) for each in lasting}
    is_muted = {cluster: _any_of(of_cluster).match for cluster, of_cluster in patterns.items()}

    def mute_of(key: GroupKey) -> Mute | None:
        match = is_muted.get(key.cluster)
        return next(mute for mute in lasting if mute.names(key)) if match and match(key.consumer) else None

    return mute_of


def read(log: EventLog, note: tuple[str, str] = NOTE) -> list[Mute]:
    """All mutes. The leader removes each mute some seconds after its end. Raises `LogUnavailableError`."""
    return decode(log.recall(*note))


def decode(note: bytes | None) -> list[Mute]:
    try:
        return msgspec.json.decode(note or b"[]", type=list[Mute])
    except msgspec.MsgspecError:  # a note of another version
        return []


def begin(log: EventLog, mute: Mute) -> bool:
    """Save a mute. Return false if there are `MOST` mutes already."""
    kept: list[Mute] = []

    def added(note: bytes | None) -> bytes:
        kept[:] = [*decode(note), mute][:MOST]
        return msgspec.json.encode(kept)

    log.revise(*NOTE, added)
    if mute in kept:
        _log.info("a mute has begun", code="mute_began", **msgspec.to_builtins(mute))
    return mute in kept


def end(log: EventLog, is_over: Callable[[Mute], bool]) -> list[Mute]:
    """Remove the mutes for which ``is_over`` is true, and log their end. Of several processes, one removes a mute."""
    over: list[Mute] = []

    def rest(note: bytes | None) -> bytes:
        over[:] = filter(is_over, known := decode(note))
        return msgspec.json.encode([mute for mute in known if mute not in over])

    if any(map(is_over, read(log))):
        log.revise(*NOTE, rest)
    if over:
        now = EPOCH + timedelta(milliseconds=log.wall_ms_at(log.log_time_ms()))
        ended = [msgspec.structs.replace(mute, until=min(mute.until, now)) for mute in over]
        log.revise(*ENDED, lambda note: msgspec.json.encode([*decode(note), *ended][-MOST:]))
    for mute in over:
        _log.info("a mute has ended", code="mute_ended", **msgspec.to_builtins(mute))
    return over
