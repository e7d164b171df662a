"""Finds committed offsets that Kafka deletes, and offsets whose messages Kafka deletes before the group reads them.

Kafka 2.1 and later (KIP-211) deletes a committed offset at these times; older versions always use ``expire_ts``:

- If the commit has an ``expire_ts``: at that time, even if the group has members.
- If the last member of the group left: ``offsets.retention.minutes`` after it left.
- If no member of the group has a partition of the topic: ``offsets.retention.minutes`` after the last commit.
- If the group never had members (``assign()``): ``offsets.retention.minutes`` after the last commit.

Groups of the KIP-848 protocol keep their members in records of other types, so this module treats them as groups
without members. Their offsets are at risk only after ``offsets.retention.minutes`` without a commit.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from karrot.event import OffsetCommit, lag_at
from karrot.history.duckdb_reader import Duck
from karrot.history.moments import epoch_ms, moment_of
from karrot.history.offsets_at_moment import LogGrowth, LookBack, OffsetHistory, Owners, ends, owners, pasts
from karrot.history.results import Risk, RiskKind, Risks

_WINDOW = timedelta(days=1)
"""The growth of a log's start and end is measured over this time."""
_MS = timedelta(milliseconds=1)
_NEVER_MS = epoch_ms(datetime(9999, 1, 1, tzinfo=UTC))
"""An ``expire_ts`` of at least this value means "never": clients could request an unlimited retention."""


class Bounds(NamedTuple):
    """The limits of the search: it finds risks ``within`` this time, if Kafka keeps offsets for ``retention``."""

    within: timedelta
    retention: timedelta


class _Known(NamedTuple):
    """The known data of a group's partition."""

    at: datetime
    commit: OffsetCommit
    past: OffsetHistory
    sample: LogGrowth | None
    owned: Owners | None
    has_members: bool


def risks(
    duck: Duck, look_back: LookBack, bounds: Bounds, *, has_members: bool, cluster: str | None, group: str | None
) -> Risks:
    """Find the risks at a moment, in their order. Without ``has_members``, the members are unknown, not none."""
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
            # A deleted offset matters if the topic exists (it has recent samples) and grows (there is more to read).
            sample = each.sample
            if sample is not None and sample.end > sample.end_then and each.at - moment_of(sample.seen_ms) <= _WINDOW:
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
    """The time at which Kafka will delete the offset (``None`` if it will not), and the reason."""
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
    # Compare numbers, because a very distant time may not fit into a timedelta.
    if nearer > 0 and margin <= nearer * (within / _MS):
        yield _risk(RiskKind.LOG_START, known.at + margin / nearer * _MS, known, "log start comes nearer")


def _per_ms(known: _Known) -> float:
    """How many messages per millisecond the log start came nearer to the committed offset, in the last day."""
    offset, past, sample = known.commit.offset, known.past, known.sample
    if sample is None or sample.start is None or sample.start_then is None or sample.seen_ms == sample.then_ms:
        return 0.0
    cut = (sample.start - sample.start_then) / (sample.seen_ms - sample.then_ms)
    if offset is None or past.offset_then is None or past.then_ms is None:
        return cut
    elapsed = epoch_ms(known.at) - past.then_ms
    return cut - (offset - past.offset_then) / elapsed if elapsed else cut


def _risk(kind: RiskKind, at: datetime, known: _Known, because: str) -> Risk:
    cluster, topic, partition = known.commit.place
    offset, group = known.past.last_offset, known.commit.group
    return Risk(kind, at, cluster, group, topic, partition, offset, _lag(known), _margin(known), because)


def _lag(known: _Known) -> int | None:
    offset, sample = known.past.last_offset, known.sample
    return None if offset is None or sample is None else lag_at(sample.end, sample.seen_ms, offset, known.commit.at_ms)


def _margin(known: _Known) -> int | None:
    offset, sample = known.past.last_offset, known.sample
    return None if offset is None or sample is None or sample.start is None else offset - sample.start
