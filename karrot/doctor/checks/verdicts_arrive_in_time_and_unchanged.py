"""Checks Burrow against Karrot: whether Burrow's verdicts arrive in time and unchanged."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean

from karrot.api.bodies import GroupEvent
from karrot.doctor.checks import Check, Problem, check, fault, not_due, only_if, warn
from karrot.doctor.read_burrow import BurrowSeen, admits
from karrot.doctor.read_karrot import KarrotSeen
from karrot.doctor.reader_helpers import netloc
from karrot.event import GroupKey, has_burrow_name
from karrot.text import counted_plain, some

_LINES = "burrow.md#why-each-line"
_WRONG = "burrow.md#when-something-is-wrong"
_DOCTOR = "burrow.md#karrot-doctor"
_START_S = 60
_FEWEST_GAPS = 5
_INTERVALS_BACK = 30
_RARE, _TOO_MANY = 1.25, 1.6


@check(success="events arrive often enough for KARROT_STALE_AFTER", where=_WRONG)
def stale_after(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """Burrow's interval is too long for KARROT_STALE_AFTER. So groups vanish and come back."""
    remedy = f"[notifier.NAME] interval = 30, or KARROT_STALE_AFTER={2 * burrow.interval + _START_S}"
    what = f"Burrow evaluates every {burrow.interval} s, and KARROT_STALE_AFTER is {karrot.stale_after:.0f} s"
    only_if(burrow.notifiers and karrot.settings)
    if burrow.interval <= 0:
        yield fault('an interval is not a whole number of seconds (such as "30s")', "[notifier.NAME] interval = 30")
    elif 2 * burrow.interval >= karrot.stale_after:
        yield fault(f"{what}: groups vanish and come back", remedy)
    elif 2 * burrow.interval + _START_S > karrot.stale_after:
        yield warn(f"{what}: one lost event makes a group vanish", remedy)


@check(success="each event has a new verdict", where=_DOCTOR)
def expire_cache(burrow: BurrowSeen, _: KarrotSeen) -> Iterator[Problem]:
    """An evaluator caches verdicts for longer than the interval. So events repeat old verdicts."""
    only_if(burrow.notifiers and burrow.evaluators)
    for name, each in burrow.evaluators.items():
        if each.expire_cache > burrow.interval:
            yield warn(
                f"[evaluator.{name}] keeps a verdict for {each.expire_cache} s, longer than the interval of "
                f"{burrow.interval} s: events repeat old verdicts",
                f"[evaluator.{name}] expire-cache = 10",
            )


@check("KarrotBurrowSilent", success="Burrow sends events for every cluster that it lists", where=_WRONG)
def silent_notifier(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """Burrow lists groups of a cluster, but Karrot got no event of the cluster for two intervals and a minute."""
    only_if(any(burrow.groups.values()) and karrot.samples and burrow.to_karrot)
    patience = 2 * burrow.interval + _START_S
    for cluster, groups in burrow.groups.items():
        if cluster in karrot.not_due:
            yield not_due(cluster, karrot.not_due[cluster])
        elif groups and (age := karrot.heard.get(cluster, float("inf"))) > patience:
            when = "never accepted an event of it" if age == float("inf") else f"accepted the last one {age:.0f} s ago"
            yield fault(
                f"Burrow lists {counted_plain(len(groups), 'group')} of {cluster}, but Karrot {when}",
                _why_silent(burrow, karrot, cluster),
            )


@check("KarrotOnlyUnhealthyVerdicts", success="Karrot gets events of healthy groups too", where=_WRONG)
def only_bad(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """Karrot gets only WARN and ERR of a cluster, although Burrow has groups that are OK."""
    well = [each for each in burrow.verdicts if each.status_text == "OK" and not has_burrow_name(each.consumer)]
    healthy = {each.cluster for each in well if _senders(burrow, each.consumer)}
    posted = [each for each in karrot.groups or () if each.source == "webhook" and not has_burrow_name(each.consumer)]
    posted_by_cluster = {cluster: [each for each in posted if each.cluster == cluster] for cluster in sorted(healthy)}
    only_if(any(posted_by_cluster.values()))
    for cluster, groups in posted_by_cluster.items():
        if groups and all(each.status != "OK" for each in groups):
            yield fault(
                f"Karrot gets only WARN and ERR of {cluster} ({counted_plain(len(groups), 'group')}), "
                "but Burrow has groups that are OK",
                "[notifier.NAME] threshold = 1"
                if any(each.threshold > 1 for each in burrow.to_karrot.values())
                else "remove send-once from [notifier.NAME]",
            )


@check(success="Karrot knows every group that Burrow lists", where=_WRONG)
def missing_groups(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """Karrot does not know groups that Burrow lists, because of a denylist, send-once or lost events."""
    only_if(karrot.groups is not None and karrot.has_all_groups and karrot.heard.keys() & burrow.groups.keys())
    known = {GroupKey(each.cluster, each.consumer) for each in karrot.groups or ()}
    for cluster, groups in burrow.groups.items():
        missing = [
            each
            for each in groups
            if GroupKey(cluster, each) not in known and not has_burrow_name(each) and _senders(burrow, each)
        ]
        if missing and cluster in karrot.heard:
            many = counted_plain(len(missing), "group")
            yield warn(
                f"Burrow lists {many} of {cluster} that Karrot does not know: {some(missing)}",
                "check group-denylist, threshold and send-once of [notifier.NAME], and the refused events at "
                f"{karrot.url}/rejects; Burrow sends a new group within {_START_S + burrow.interval} s",
            )


@check(success="an event arrives in each interval", where=_LINES)
def send_interval(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """Events arrive less often than Burrow evaluates. The notifier's `send-interval` is not below `interval`."""
    only_if(all(each.threshold <= 1 for each in burrow.to_karrot.values()))  # otherwise OK groups send no events
    gaps = [gap for events in _lately(burrow, karrot).values() for gap in _gaps(events)]
    usual = [gap for gap in gaps if gap < 3 * burrow.interval]  # a restart of Burrow or Karrot makes longer gaps
    only_if(len(usual) >= _FEWEST_GAPS)
    if mean(usual) > _RARE * burrow.interval:
        yield warn(
            f"events of a group arrive every {mean(usual):.0f} s, but Burrow evaluates every {burrow.interval} s",
            f"[notifier.NAME] send-interval = {max(1, burrow.interval * 2 // 3)}",
        )


@check(success="one notifier of one Burrow posts each group", where=_DOCTOR)
def two_burrows(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """Two Burrows, or two notifiers of one, post the same groups: too many events, or incident ids that alternate."""
    histories = {key: events for key, events in _lately(burrow, karrot).items() if len(_gaps(events)) >= _FEWEST_GAPS}
    only_if(histories and burrow.interval > 0)
    for (cluster, group), events in histories.items():
        senders, gaps = _senders(burrow, group), _gaps(events)
        usual = [gap for gap in gaps if gap < 3 * burrow.interval]  # a restart of Burrow or Karrot makes longer gaps
        number = (len(gaps) + 1) / (sum(usual) / burrow.interval + len(gaps) - len(usual) + 1)
        what = f"{number:.1f} events arrive in an interval of {burrow.interval} s"
        if (turns := _take_turns(events)) or number > _TOO_MANY * max(1, len(senders)):
            yield warn(
                f"more than one program posts {group} of {cluster}: {'two incident ids alternate' if turns else what}",
                "give Burrows of the same Kafka the same [zookeeper] servers and root-path, and Burrows of different "
                "Kafkas different cluster names; karrot pipeline offsets needs a cluster name of its own",
            )
            return
        if number > _TOO_MANY:
            yield warn(
                f"{some(senders)} admit {group} of {cluster}, and {what}",
                "let only one of them admit a group (group-allowlist, group-denylist); if that is so already, another "
                "Burrow posts too",
            )
            return


@check(success="Burrow lists the clusters that Karrot expects", where="reference/settings.md")
def expected_clusters(burrow: BurrowSeen, karrot: KarrotSeen) -> Iterator[Problem]:
    """KARROT_EXPECTED_CLUSTERS has a name in upper case. Burrow's names are in lower case."""
    only_if(karrot.settings and burrow.listed)
    named = [name for name in re.split(r"\s*,\s*", karrot.setting("EXPECTED_CLUSTERS")) if name]
    for name in named:
        if name != name.lower() and name.lower() in burrow.listed:
            yield fault(
                f"KARROT_EXPECTED_CLUSTERS has {name}, but Burrow's name is {name.lower()}",
                f"KARROT_EXPECTED_CLUSTERS={','.join(each.lower() for each in named)}",
            )


def _why_silent(burrow: BurrowSeen, karrot: KarrotSeen, cluster: str) -> str:
    """Return the remedy for a silent Burrow, according to the causes that the snapshot shows."""
    all_ok = all(each.status_text == "OK" for each in burrow.verdicts if each.cluster == cluster)
    if all_ok and all(each.threshold > 1 for each in burrow.to_karrot.values()):
        return "[notifier.NAME] threshold = 1: otherwise, Burrow sends nothing while all groups are OK"
    return (
        f"{karrot.unless_refused}check Burrow's log: it sends nothing without ZooKeeper's lock, and nothing in its "
        f"first 60 s; on its host, run karrot send-sample --karrot {karrot.url}"
    )


def _senders(burrow: BurrowSeen, group: str) -> list[str]:
    """Return the notifiers for Karrot whose allowlists admit a group. Burrow may know Karrot under another URL."""
    to_any, here = burrow.to_karrot, netloc(burrow.karrot_url or "")
    to_this = {name: each for name, each in to_any.items() if netloc(each.url_open or "") == here}
    return [f"[notifier.{name}]" for name, each in (to_this or to_any).items() if admits(each, group) is not False]


def _lately(burrow: BurrowSeen, karrot: KarrotSeen) -> dict[GroupKey, list[GroupEvent]]:
    """Return the recent webhook events of Burrow's clusters. Older events may predate a change of settings."""
    return {
        key: [
            each
            for each in events
            if each.source == "webhook" and karrot.age(each.received_at) < _INTERVALS_BACK * burrow.interval
        ]
        for key, events in karrot.histories.items()
        if key.cluster in burrow.listed
    }


def _gaps(events: Sequence[GroupEvent]) -> list[float]:
    """Return the seconds between successive webhook events."""
    times = sorted(each.received_at for each in events if each.received_at)
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


def _take_turns(events: Sequence[GroupEvent]) -> bool:
    """Whether an event of one incident arrived after another incident of the same group began."""
    seen: list[str] = []
    for each in reversed(events):
        if not each.incident_id or each.incident_id in seen[-1:]:
            continue
        if each.incident_id in seen:
            return True
        seen.append(each.incident_id)
    return False


CHECKS = [each for each in tuple(globals().values()) if isinstance(each, Check)]
"""Every check of this module, in source order."""
