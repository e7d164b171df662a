"""Checks Burrow against Karrot: whether verdicts arrive, in time and unchanged."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean, median

from karrot.doctor.checks import Said, check, fault, note, only_if, warn
from karrot.doctor.snapshot_types import BurrowSeen, KarrotSeen, ReadGroupEvent
from karrot.event import GroupKey, has_burrow_name
from karrot.text import counted_plain, some

_LINES = "burrow.md#why-each-line"
_WRONG = "burrow.md#when-something-is-wrong"
_DOCTOR = "burrow.md#karrot-doctor"
_START_S = 60
_FEWEST_GAPS = 5
_INTERVALS_BACK = 30
_RARE, _TOO_MANY = 1.25, 0.6
_LEAST_DIFFERENCE, _SHARE = 1000, 0.5


@check(well="events come often enough for KARROT_STALE_AFTER", where=_WRONG)
def stale_after(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """An interval too long for KARROT_STALE_AFTER: groups vanish and come back."""
    mend = f"[notifier.NAME] interval = 30, or KARROT_STALE_AFTER={2 * burrow.interval + _START_S}"
    told = f"Burrow evaluates every {burrow.interval} s, and KARROT_STALE_AFTER is {karrot.stale_after:.0f} s"
    only_if(burrow.notifiers and karrot.settings)
    if burrow.interval <= 0:
        yield fault('an interval is no whole number of seconds ("30s"?)', "[notifier.NAME] interval = 30")
    elif 2 * burrow.interval >= karrot.stale_after:
        yield fault(f"{told}: groups vanish and come back", mend)
    elif 2 * burrow.interval + _START_S > karrot.stale_after:
        yield warn(f"{told}: one lost event makes a group vanish", mend)


@check(well="each event has a verdict of its own", where=_DOCTOR)
def expire_cache(burrow: BurrowSeen, _: KarrotSeen) -> Iterator[Said]:
    """An evaluator's cache longer than the interval: events repeat old verdicts."""
    only_if(burrow.notifiers and burrow.evaluators)
    for name, each in burrow.evaluators.items():
        if each.expire_cache > burrow.interval:
            yield warn(
                f"[evaluator.{name}] keeps a verdict {each.expire_cache} s, longer than the interval of "
                f"{burrow.interval} s: events repeat it",
                f"[evaluator.{name}] expire-cache = 10",
            )


@check("Burrow silent", well="what Burrow lists is heard", where=_WRONG)
def silent_notifier(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Burrow lists groups of a cluster, and Karrot heard nothing of it for longer than two intervals and a minute."""
    only_if(any(burrow.groups.values()) and karrot.samples)
    patience = 2 * burrow.interval + _START_S
    for cluster, groups in burrow.groups.items():
        if groups and (age := karrot.heard.get(cluster, float("inf"))) > patience:
            said = "never heard of it" if age == float("inf") else f"last heard of it {age:.0f} s ago"
            yield fault(
                f"Burrow lists {counted_plain(len(groups), 'group')} of {cluster}, and Karrot {said}",
                "Burrow's log: without ZooKeeper's lock it sends nothing, nor in its first 60 s; from its host: "
                f"karrot send-sample --url {karrot.url}",
            )


@check("only unhealthy verdicts", well="healthy groups are heard too", where=_WRONG)
def only_bad(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Karrot hears of a cluster WARN and ERR alone, while Burrow has groups that are OK."""
    healthy = {
        event.cluster for event in burrow.verdicts if event.status_text == "OK" and not has_burrow_name(event.consumer)
    }
    posted = [each for each in karrot.groups or () if each.source == "webhook" and not has_burrow_name(each.consumer)]
    told_of = {cluster: [each for each in posted if each.cluster == cluster] for cluster in sorted(healthy)}
    only_if(any(told_of.values()))
    for cluster, told in told_of.items():
        if told and all(each.status != "OK" for each in told):
            yield fault(
                f"of {cluster} Karrot hears only groups in trouble ({len(told)}), though Burrow has healthy ones",
                "[notifier.NAME] threshold = 1, and no send-once",
            )


@check(well="Karrot knows every group that Burrow lists", where=_WRONG)
def missing_groups(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Groups that Burrow lists and Karrot does not know: denylist, send-once, or a cluster heard in part."""
    only_if(karrot.groups is not None and karrot.has_all_groups and karrot.heard.keys() & burrow.groups.keys())
    known = {GroupKey(each.cluster, each.consumer) for each in karrot.groups or ()}
    for cluster, groups in burrow.groups.items():
        missing = [
            each
            for each in groups
            if GroupKey(cluster, each) not in known and not has_burrow_name(each) and _is_let(burrow, each)
        ]
        if missing and cluster in karrot.heard:
            many = counted_plain(len(missing), "group")
            yield warn(
                f"Burrow lists {many} of {cluster} that Karrot does not know: {some(missing)}",
                "[notifier.NAME] group-denylist, threshold and send-once; a new group is sent within "
                f"{_START_S + burrow.interval} s",
            )


@check(well="Burrow and Karrot agree on lags", where=_DOCTOR)
def lag(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Burrow and Karrot tell different lags of a group, though Karrot heard of it lately."""
    heard = {GroupKey(each.cluster, each.consumer): each for each in karrot.groups or ()}
    compared, apart = 0, []
    for event in burrow.verdicts:
        group = heard.get(GroupKey(event.cluster, event.consumer))
        if group is None or karrot.age(group.last_event_at) > 2 * burrow.interval:
            continue
        compared += 1
        now, before = event.total_lag, group.lag
        if now is None or before is None:
            continue
        if abs(now - before) > max(_LEAST_DIFFERENCE, _SHARE * max(now, before)):
            apart.append(f"{event.consumer} {now} now, {before} {karrot.age(group.last_event_at):.0f} s ago")
    only_if(compared)
    if apart:
        say = warn if len(apart) * 2 > compared else note
        many = f"{len(apart)} of {counted_plain(compared, 'group')}"
        yield say(
            f"the lag of {many} is another in Burrow than in Karrot: {some(apart)}",
            "ask again: it moves; if it stays so, another Burrow posts under this cluster's name",
        )


@check(well="events come once in each interval", where=_LINES)
def send_interval(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Events come more seldom than Burrow evaluates: send-interval is not less than interval (Burrow hides it)."""
    only_if(all(each.threshold <= 1 for each in burrow.to_karrot.values()))  # else no event is due in each interval
    gaps = [gap for events in _lately(burrow, karrot).values() for gap in _gaps(events)]
    usual = [gap for gap in gaps if gap < 3 * burrow.interval]  # a restart of anybody makes a longer one
    only_if(len(usual) >= _FEWEST_GAPS)
    if mean(usual) > _RARE * burrow.interval:
        yield warn(
            f"events of a group come every {mean(usual):.0f} s, though Burrow evaluates every {burrow.interval} s",
            f"[notifier.NAME] send-interval = {max(1, burrow.interval * 2 // 3)}",
        )


@check(well="one Burrow posts for each cluster", where=_DOCTOR)
def two_burrows(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """Two Burrows post the same groups: events come too often, or the ids of incidents take turns."""
    fewest = burrow.interval / max(1, len(burrow.to_karrot))
    histories = {key: events for key, events in _lately(burrow, karrot).items() if len(_gaps(events)) >= _FEWEST_GAPS}
    only_if(histories)
    for (cluster, group), events in histories.items():
        gaps = _gaps(events)
        often = median(gaps) < _TOO_MANY * fewest
        if often or _take_turns(events):
            said = f"events come every {median(gaps):.0f} s" if often else "the ids of incidents take turns"
            yield warn(
                f"more than one Burrow posts {group} of {cluster}: {said}",
                "the same [zookeeper] servers and root-path for Burrows of one Kafka, other cluster names for others",
            )
            return


@check(well="the clusters that Karrot expects are Burrow's", where="reference/settings.md")
def expected_clusters(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """KARROT_EXPECTED_CLUSTERS names none, or one that Burrow writes otherwise: in lower case."""
    only_if(karrot.settings and burrow.listed)
    named = [name for name in re.split(r"\s*,\s*", karrot.setting("EXPECTED_CLUSTERS")) if name]
    for name in named:
        if name != name.lower() and name.lower() in burrow.listed:
            yield fault(
                f"KARROT_EXPECTED_CLUSTERS names {name}, which Burrow writes {name.lower()}",
                f"KARROT_EXPECTED_CLUSTERS={','.join(each.lower() for each in named)}",
            )
    if not named:
        yield note(
            "KARROT_EXPECTED_CLUSTERS is empty: a cluster that is silent from the first raises no alarm",
            f"KARROT_EXPECTED_CLUSTERS={','.join(burrow.listed)}",
        )


@check(well="Karrot reads Burrow's REST API", where="reference/settings.md")
def resync(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Said]:
    """KARROT_BURROW_URL is not set: lost events are not healed, deleted groups only fall silent."""
    only_if(karrot.settings)
    if not karrot.setting("BURROW_URL"):
        yield note(
            "Karrot does not read Burrow's REST API: a lost event stays lost, a deleted group only falls silent",
            f"KARROT_BURROW_URL={burrow.url}",
        )


def _is_let(burrow: BurrowSeen, group: str) -> bool:
    """Whether some notifier's allowlist lets a group pass; another check reports the allowlist."""
    patterns = [each.group_allowlist or each.group_whitelist or "" for each in burrow.to_karrot.values()]
    try:
        return any(re.search(pattern, group) for pattern in patterns)
    except re.error:
        return True


def _lately(burrow: BurrowSeen, karrot: KarrotSeen) -> dict[GroupKey, list[ReadGroupEvent]]:
    """The events of this Burrow's webhooks in the last intervals; before that its settings may have been others."""
    return {
        key: [
            each
            for each in events
            if each.source == "webhook" and karrot.age(each.received_at) < _INTERVALS_BACK * burrow.interval
        ]
        for key, events in karrot.histories.items()
        if key.cluster in burrow.listed
    }


def _gaps(events: Sequence[ReadGroupEvent]) -> list[float]:
    """Seconds between one webhook and the next."""
    times = sorted(each.received_at for each in events if each.received_at)
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


def _take_turns(events: Sequence[ReadGroupEvent]) -> bool:
    """Whether an incident goes on after another one began."""
    seen: list[str] = []
    for each in reversed(events):
        if not each.incident_id or each.incident_id in seen[-1:]:
            continue
        if each.incident_id in seen:
            return True
        seen.append(each.incident_id)
    return False


CHECKS = (
    stale_after,
    expire_cache,
    silent_notifier,
    only_bad,
    missing_groups,
    lag,
    send_interval,
    two_burrows,
    expected_clusters,
    resync,
)
"""Each takes a `BurrowSeen` and a `KarrotSeen`."""
