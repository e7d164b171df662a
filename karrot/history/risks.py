"""Finds committed offsets that Kafka has deleted or will delete, or whose messages it deletes before they are read.

When Kafka deletes a committed offset (2.1 and later, KIP-211; before that, whenever ``expire_ts`` is written):

- one that has an ``expire_ts``: then, whatever its group does;
- of a group whose last member left: ``offsets.retention.minutes`` after that;
- of a topic that no member of the group has a partition of: so long after its last commit;
- of a group without members from the start (``assign()``): likewise.

Groups of the protocol of KIP-848 keep their members in records of other types, so they count as groups without members,
which they are not: theirs are at risk only where nothing was committed for so long.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from karrot.event import OffsetCommit
from karrot.history.duckdb_reader import Duck
from karrot.history.moments import epoch_ms, moment_of
from karrot.history.offsets_at_moment import LogGrowth, LookBack, OffsetHistory, Owners, ends, owners, pasts
from karrot.history.results import Risk, RiskKind, Risks

_WINDOW = timedelta(days=1)
"""Over which it is seen how fast a log grows at its end, and is cut at its start."""
_MS = timedelta(milliseconds=1)
_NEVER_MS = epoch_ms(datetime(9999, 1, 1, tzinfo=UTC))
"""Clients could ask for a retention without end, and got a moment that is none."""


class Bounds(NamedTuple):
    """What is taken as a risk: what happens ``within`` a time, with Kafka's retention of offsets."""

    within: timedelta
    retention: timedelta


class _Known(NamedTuple):
    """What is known of a partition of a group."""

    at: datetime
    commit: OffsetCommit
    past: OffsetHistory
    looked: LogGrowth | None
    owned: Owners | None
    has_members: bool


def risks(
    duck: Duck, look_back: LookBack, bounds: Bounds, *, has_members: bool, cluster: str | None, group: str | None
) -> Risks:
    """The risks at that moment, what happens first coming first.

    Unless it ``has_members``, the table of members is not there: that a group has none is not known then.
    """
    newest = pasts(duck, look_back, look_back.at - _WINDOW, cluster=cluster, group=group)
    owned = owners(duck, look_back, cluster=cluster, group=group)
    seen = ends(duck, look_back, {each.place for each, _ in newest}, before=_WINDOW)
    known = (
        _Known(look_back.at, each, past, seen.get(each.place), owned.get(each.key), has_members)
        for each, past in newest
    )
    found: list[Risk] = []
    for each in known:
        if each.commit.offset is None:
            # A topic that was deleted too has no newer looks; one that does not grow has nothing to read.
            looked = each.looked
            if looked is not None and looked.end > looked.end_then and each.at - moment_of(looked.seen_ms) <= _WINDOW:
                found.append(_risk(RiskKind.DELETED, moment_of(each.commit.at_ms), each, "topic grows"))
            continue
        ends_at, because = _expiry(each, bounds.retention)
        if ends_at is not None and ends_at - each.at <= bounds.within:
            found.append(_risk(RiskKind.EXPIRES, ends_at, each, because))
        found += _log_start(each, bounds.within)
    ordered = sorted(found, key=lambda risk: (risk.at, risk.cluster, risk.group, risk.topic, risk.partition))
    unknown = {
        "log ends": not seen,
        "log starts": bool(seen) and all(each.start is None for each in seen.values()),
        "members": not has_members,
    }
    return Risks(tuple(ordered), tuple(what for what, is_unknown in unknown.items() if is_unknown))


def _expiry(known: _Known, retention: timedelta) -> tuple[datetime | None, str]:
    """When Kafka will delete the offset, if it will, and why."""
    commit, owned, expire_ms = known.commit, known.owned, known.past.expire_ms
    if expire_ms is not None and expire_ms > 0:
        return (moment_of(expire_ms) if expire_ms < _NEVER_MS else None), "expire_ts"
    if not known.has_members:
        return None, ""
    committed = moment_of(commit.at_ms)
    if owned is None or owned.is_gone:
        return committed + retention, "no commit since"
    if not owned.members:
        return moment_of(owned.log_ms) + retention, "no members since"
    topics = {topic for topic, _ in owned.by_partition}
    if topics and commit.place.topic not in topics:
        return committed + retention, "not subscribed"
    return None, ""


def _log_start(known: _Known, within: timedelta) -> Iterator[Risk]:
    margin, lag = _margin(known), _lag(known)
    if margin is None or not lag:
        return
    if margin < 0:
        yield _risk(RiskKind.LOG_START, known.at, known, "messages lost")
        return
    nearer = _per_ms(known)
    # Numbers are compared, because a time this far away may be longer than a timedelta holds.
    if nearer > 0 and margin <= nearer * (within / _MS):
        yield _risk(RiskKind.LOG_START, known.at + margin / nearer * _MS, known, "log start comes nearer")


def _per_ms(known: _Known) -> float:
    """How many messages the log start comes nearer to the committed offset in a millisecond, by the last day."""
    offset, past, looked = known.commit.offset, known.past, known.looked
    if looked is None or looked.start is None or looked.start_then is None or looked.seen_ms == looked.then_ms:
        return 0.0
    cut = (looked.start - looked.start_then) / (looked.seen_ms - looked.then_ms)
    if offset is None or past.offset_then is None or past.then_ms is None:
        return cut
    elapsed = epoch_ms(known.at) - past.then_ms
    return cut - (offset - past.offset_then) / elapsed if elapsed else cut


def _risk(kind: RiskKind, at: datetime, known: _Known, because: str) -> Risk:
    cluster, topic, partition = known.commit.place
    offset, group = known.past.last_offset, known.commit.group
    return Risk(kind, at, cluster, group, topic, partition, offset, _lag(known), _margin(known), because)


def _lag(known: _Known) -> int | None:
    offset, looked = known.past.last_offset, known.looked
    return None if offset is None or looked is None else max(0, looked.end - offset)


def _margin(known: _Known) -> int | None:
    offset, looked = known.past.last_offset, known.looked
    return None if offset is None or looked is None or looked.start is None else offset - looked.start
