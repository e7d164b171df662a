"""Names the cause of a group's state with its evidence, or says what is not known. No I/O.

A cause is named only if the facts exclude the others. The rules run in a fixed order, and the first finding wins.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from karrot.diagnosis.known_facts import Flow, Known, flows, moved_ms, owner, place_of, places, topic_ids, total
from karrot.event import ABANDONED, BEYOND_END, LEFT, NEVER_COMMITTED, OPEN_TRANSACTION, PartitionLag, Status
from karrot.text import count, counted, visible

_STUCK = frozenset({Status.STOP.name, Status.STALL.name})
_RISK_S = 4 * 3600  # like the alert KarrotRetentionRisk
_STORM, _SURE_STORM = 5, 15  # a rolling deployment moves the partitions twice for each member
_ABANDONED = {
    "named": "The setting KARROT_ABANDONED_GROUPS names it.",
    "brief": "It was active for less than KARROT_ABANDONED_AFTER.",
    "idle": "Its topics have got nothing for KARROT_ABANDONED_AFTER, since its members left.",
}
_MORE, _LESS, _EQUAL, _HOT = 1.5, 0.75, 0.9, 3


class Found(NamedTuple):
    """A cause with the values of its words. The commands name the partition ``at``, and reset it to ``offset``.

    ``stuck`` are the partitions that do not move. ``reason`` is the cause of this cause.
    """

    cause: str
    values: Mapping[str, object] = MappingProxyType({})
    stuck: Sequence[PartitionLag] = ()
    at: PartitionLag | None = None
    offset: int | None = None
    evidence: Sequence[str] = ()
    missing: str = ""
    reason: str = ""


def find(known: Known) -> Found:
    """Find the cause of a group's state."""
    summary = known.state.summary
    if known.is_cut_off:
        return Found("burrow_cut_off")
    if summary.status_text == ABANDONED:
        reason = dict(known.newest.extras).get(ABANDONED.lower()) if known.newest else None
        return Found("abandoned", evidence=[_ABANDONED[reason]] if reason in _ABANDONED else [])
    if summary.status is Status.OK:
        return _at_risk(known, _storm(known) or _went_back(known) or _left(known) or Found("none"))
    if known.state.is_of_burrow:
        return Found("burrow_behind")
    stuck = [one for one in known.read if one.status_text in _STUCK]
    found = _by_state(known, stuck) or _no_members(known, stuck) or _storm(known) or _went_back(known)
    found = found or (_stuck(known, stuck) if stuck else _by_rates(known))
    return _at_risk(known, found or Found("not_known", missing=_missing(known, stuck)))


def _by_state(known: Known, stuck: Sequence[PartitionLag]) -> Found | None:
    """The causes that one state of a partition proves."""
    states = {OPEN_TRANSACTION: "open_transaction", BEYOND_END: "beyond_end"}
    states |= {NEVER_COMMITTED: "never_committed"} if known.state.summary.status is Status.ERR and not stuck else {}
    at = next((one for text in states for one in known.partitions if one.status_text == text), None)
    return at and Found(states[at.status_text], at=at)


def _storm(known: Known) -> Found | None:
    (number, seconds), members = known.rebalances, known.members or 0
    is_ok, values = known.state.summary.status is Status.OK, {"number": number, "span": seconds, "members": members}
    enough = max(_SURE_STORM, 6 * members) if is_ok else min(_SURE_STORM, max(_STORM, 2 * members + 1))
    return Found("rebalance_storm", values) if number >= enough else None


def _no_members(known: Known, stuck: Sequence[PartitionLag]) -> Found | None:
    waiting = sum(one.current_lag or 0 for one in stuck)
    return Found("no_members", {"waiting": waiting}, stuck) if known.members == 0 and stuck else None


def _went_back(known: Known) -> Found | None:
    """A committed offset that is lower than before. Only the topic's id tells a reset from a recreated topic."""
    before, back = places(known.before), list[tuple[PartitionLag, int]]()
    ids, now, told = topic_ids(known.before), topic_ids(known.newest), list[str]()
    is_new = {topic: ids[topic] != now[topic] for topic in ids.keys() & now.keys()}
    for one in known.read:
        old, end = before.get(place_of(one)), one.log_end_offset
        was = max(each.offset if each else 0 for each in (old and old.end, one.start))
        is_shorter = end is not None and end < ((old and old.log_end_offset) or 0)
        can_be = not is_shorter or is_new.get(one.topic)
        if one.end is not None and one.end.offset < was and can_be and one.status_text not in _STUCK:
            back.append((one, was))
            told.append(f"{name_of(one)} was at offset {count(was)}, and is at {count(one.position or 0)}.")
    if not back:
        return None
    at, was = back[0]
    found = Found("went_back", {"number": len(back), "all": len(known.read)}, at=at, evidence=told[:3])
    which = {is_new.get(one.topic) for one, _ in back}
    if which == {False}:
        return found._replace(cause="offsets_reset", offset=was)
    if which == {True}:
        proof = f"The id of {visible(at.topic)} was {visible(ids[at.topic])}, and is {visible(now[at.topic])}."
        return found._replace(cause="topic_recreated", evidence=[*told[:3], proof])
    return found._replace(missing="topic_id")


def _stuck(known: Known, stuck: Sequence[PartitionLag]) -> Found | None:
    """Tell a consumer that hangs from an unreadable record by its other partitions. Equal owners can be two members."""
    has_nothing = any(one.first_unread and one.first_unread.written_ms is None for one in stuck)
    if has_nothing or not known.members or not known.has_all or any(not any(owner(one)) for one in stuck):
        return None
    one, moved, owners = stuck[0], [moved_ms(each) or 0 for each in stuck], {owner(each) for each in stuck}
    is_one = len(owners) == 1 and len({owner(each) for each in known.read} - {("", "")}) == known.members
    name = visible(f"{one.client_id} on {one.owner}" if one.client_id else one.owner)
    unread = [each for each in known.read if each.current_lag and (not is_one or owner(each) in owners)]
    if len(unread) == len(stuck) > 1 and min(moved) > 0 and max(moved) - min(moved) <= known.window_ms:
        who = f"{name} is still a member" if is_one else f"The group still has {counted(known.members, 'member')}"
        return Found("hung_consumer", {"who": who, "number": len(stuck)}, stuck)
    others = [each for each in known.read if owner(each) == owner(one) and _keeps_up(known, each, one)]
    is_slow = not {place_of(each) for each in unread} <= {place_of(each) for each in (*stuck, *others)}
    if not is_one or len(stuck) > 1 or not others or is_slow or one.position is None:
        return None
    rate = total(flows(known.newest, others).values()).read
    values = {"owner": name, "at": name_of(one), "position": one.position, "others": len(others), "rate": rate}
    return Found("poison_record", values, stuck, one, one.position + 1)


def _by_rates(known: Known) -> Found | None:
    """Compare the rates of the partitions with each other, and with the time before the incident."""
    rates, earlier = flows(known.newest, known.partitions), flows(known.before)
    now, number = total(rates.values()), len(rates) - 1
    now_ms = known.newest.observed_at_ms if known.newest else 0
    if any(one.current_lag and 2 * (now_ms - (moved_ms(one) or 0)) > known.window_ms for one in known.read):
        return None  # a partition that has just stopped looks slow
    if now.read > now.made:
        return Found("catching_up") if known.state.summary.signals.catch_up_seconds else None
    lag = sum(one.current_lag or 0 for one in known.read)
    worst = max(known.read, key=lambda one: one.current_lag or 0, default=None)
    own = rates.get(place_of(worst)) if worst else None
    if worst and own and number and known.has_all and 2 * (worst.current_lag or 0) >= lag:
        made, read = (now.made - own.made) / number, (now.read - own.read) / number
        if own.made > own.read and own.made >= _HOT * made and own.read >= _LESS * read:
            values = {"at": name_of(worst), "share": round(own.made / now.made, 2), "made": own.made, "read": own.read}
            return Found("hot_key", {**values, "other_made": made, "other_read": read}, at=worst)
    if known.before is None or known.newest is None or not rates or not rates.keys() <= earlier.keys():
        return None
    was, ago = total(earlier[place] for place in rates), known.newest.observed_at_ms - known.before.observed_at_ms
    changed = {"made": now.made, "read": now.read, "was_made": was.made, "was_read": was.read, "ago": ago / 1000}
    is_more, kept_up = now.made >= _MORE * was.made, was.read >= _LESS * was.made
    if kept_up and is_more and now.read >= _EQUAL * was.read:
        return Found("producer_burst", changed)
    is_slow = now.read <= _LESS * was.read and all(rates[at].read <= _EQUAL * earlier[at].read for at in rates)
    is_same = _EQUAL * now.made <= was.made
    return Found("slow_consumer", changed) if kept_up and is_same and is_slow else None


def _left(known: Known) -> Found | None:
    left = [one for one in known.partitions if one.status_text == LEFT]
    left = [one for one in left if one.topic == left[0].topic]
    waiting = sum(max(0, (one.log_end or 0) - (one.position or 0)) for one in left)
    values = {"topic": visible(left[0].topic) if left else "", "number": len(left), "waiting": waiting}
    return Found("left_topic", values, left, left[0]) if left else None


def _at_risk(known: Known, found: Found) -> Found:
    """Put lost messages, and messages that Kafka will delete soon, before the reason for the lag."""
    watched, before, newest = known.watched, known.before, known.newest
    found = found._replace(reason="" if found.cause in {"none", "not_known"} else found.cause)
    if watched is not None and watched.messages_lost:
        lost = {**found.values, "lost": watched.messages_lost}
        return found._replace(cause="messages_lost", values=lost, offset=None)
    if watched is None or watched.retention_margin is None or before is None or newest is None:
        return found._replace(reason="")
    old, rates = places(before), flows(newest, known.partitions)
    seconds = max(1, newest.observed_at_ms - before.observed_at_ms) / 1000
    for one in known.read:
        was = old[place_of(one)].log_start if place_of(one) in old else None
        start, position, lag = one.log_start, one.position, one.current_lag or 0
        if was and start is not None and position is not None:
            rate = (start - was) / seconds - rates.get(place_of(one), Flow(0, 0)).read
            if rate > 0 and position - start < min(lag, rate * _RISK_S):
                risk = {"left": (position - start) / rate, "near": name_of(one), "margin": position - start, "lag": lag}
                values = {**found.values, **risk, "was": was, "start": start, "measured": seconds}
                return found._replace(cause="retention_near", values=values, at=one, offset=None)
    return found._replace(reason="")


def _missing(known: Known, stuck: Sequence[PartitionLag]) -> str:
    if stuck and known.members is None:
        return "members"
    if not known.has_all or not stuck:
        return "rates" if known.has_all else "partitions"
    return "difference" if all(any(owner(one)) for one in stuck) else "owner"


def _keeps_up(known: Known, one: PartitionLag, stuck: PartitionLag) -> bool:
    """Whether a partition moves, long after another one stopped, and has no more lag than usual between commits."""
    moved, stopped, rate = moved_ms(one), moved_ms(stuck), flows(known.newest, [one]).get(place_of(one))
    if one.status is not Status.OK or moved is None or stopped is None or known.newest is None or rate is None:
        return False
    still_ms, stopped_ms = known.newest.observed_at_ms - moved, known.newest.observed_at_ms - stopped
    is_small = (one.current_lag or 0) <= rate.made * (still_ms + known.window_ms / 3) / 1000
    return is_small and 2 * still_ms < stopped_ms


def name_of(one: PartitionLag) -> str:
    return f"{visible(one.topic)} / {one.partition}"
