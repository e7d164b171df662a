"""Finds committed offsets that Kafka deletes, and offsets whose messages Kafka deletes before the group reads them.

Kafka 2.1 and later (KIP-211) deletes a committed offset at these times; older versions always use ``expire_ts``:

- If the commit has an ``expire_ts``: at that time, even if the group has members.
- If the last member of the group left: ``offsets.retention.minutes`` after it left.
- If no member of the group has a partition of the topic: ``offsets.retention.minutes`` after the last commit.
- If the group never had members (``assign()``): ``offsets.retention.minutes`` after the last commit.

Groups of the KIP-848 protocol keep their members in records of other types, so this module treats them as groups
without members. Their offsets are at risk only after ``offsets.retention.minutes`` without a commit.
"""

from datetime import UTC, datetime, timedelta

from karrot.history.answers_and_errors import Risk, Risks
from karrot.history.offsets_at_time import (
    LogGrowth,
    LookBack,
    OffsetCommit,
    OffsetHistory,
    Owners,
    commits_with_history,
    ends,
    lag_at,
    newest_moment,
    owners,
)
from karrot.history.time_ranges import epoch_ms, moment_of

_WINDOW = timedelta(days=1)
"""The time over which the growth of a log's start and end is measured."""
_MS = timedelta(milliseconds=1)
_NEVER_MS = epoch_ms(datetime(9999, 1, 1, tzinfo=UTC))
"""An ``expire_ts`` of at least this value means "never": clients could request an unlimited retention."""


def risks(back: LookBack, within: timedelta, retention: timedelta, *, has_members: bool) -> Risks:
    """See `History.risks`. Without ``has_members``, the members are unknown."""
    newest = commits_with_history(back, back.at - _WINDOW)
    owned = owners(back)
    seen = ends(back, {each.place for each, _ in newest}, before=_WINDOW)
    found: list[Risk] = []
    for commit, past in newest:
        sample, offset = seen.get(commit.place), past.last_offset
        lag = margin = None
        if offset is not None and sample is not None:
            lag = lag_at(sample.end, sample.seen_ms, offset, commit.at_ms)
            margin = None if sample.start is None else offset - sample.start
        (cluster, topic, partition), group = commit.place, commit.group
        of = (cluster, group, topic, partition, offset, lag, margin)
        if commit.offset is None:
            # A deleted offset matters if the topic exists (it has recent samples) and grows (there is more to read).
            if sample and sample.end > sample.end_then and back.at - moment_of(sample.seen_ms) <= _WINDOW:
                found.append(Risk("deleted", moment_of(commit.at_ms), *of, "topic grows"))
            continue
        expires_at, because = _expiry(commit, past, owned.get(commit.key), retention, has_members=has_members)
        if expires_at is not None and expires_at - back.at <= within:
            found.append(Risk("expires", expires_at, *of, because))
        if margin is None or not lag:
            continue
        if margin < 0:
            found.append(Risk("log_start", back.at, *of, "messages lost"))
            continue
        nearer = _per_ms(commit, past, sample, back.at)
        # Compare numbers, because a very distant time may not fit into a timedelta.
        if nearer > 0 and margin <= nearer * (within / _MS):
            at = back.at + margin / nearer * _MS
            found.append(Risk("log_start", at, *of, "log start comes nearer"))
    ordered = sorted(found, key=lambda risk: risk[1:6])  # by time, cluster, group, topic and partition
    unknown = {
        "log ends": not seen,
        "log starts": bool(seen) and all(each.start is None for each in seen.values()),
        "members": not has_members,
    }
    committed_at = newest_moment(each.at_ms for each, _ in newest)
    return Risks(committed_at, tuple(ordered), tuple(what for what, is_unknown in unknown.items() if is_unknown))


def _expiry(
    commit: OffsetCommit, past: OffsetHistory, owned: Owners | None, retention: timedelta, *, has_members: bool
) -> tuple[datetime | None, str]:
    """Return the time at which Kafka will delete the offset (``None`` for never), and the reason."""
    if past.expire_ms is not None and past.expire_ms > 0:
        return (moment_of(past.expire_ms) if past.expire_ms < _NEVER_MS else None), "expire_ts"
    if not has_members:
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


def _per_ms(commit: OffsetCommit, past: OffsetHistory, sample: LogGrowth | None, at: datetime) -> float:
    """Return how fast the log start approached the committed offset in the last day, in messages per millisecond."""
    offset = commit.offset
    if sample is None or sample.start is None or sample.start_then is None or sample.seen_ms == sample.then_ms:
        return 0.0
    cut = (sample.start - sample.start_then) / (sample.seen_ms - sample.then_ms)
    if offset is None or past.offset_then is None or past.then_ms is None:
        return cut
    elapsed = epoch_ms(at) - past.then_ms
    return cut - (offset - past.offset_then) / elapsed if elapsed else cut
