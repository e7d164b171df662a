"""Makes the banners above the list of groups. A banner says what is wrong in Burrow, Karrot or a reporter.

`service_health` reads the event log. `banners` is a pure function.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from karrot import burrow_cut_off, telemetry
from karrot.event import Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import GroupState, ReporterState
from karrot.eventlog.watch_data_of_groups import WatchedCluster
from karrot.reporters.base import REPORT_NOTE, read_report
from karrot.runbooks_and_remedies import CODES, REFUSED_LATELY_S, WATCH, runbook_of_failing
from karrot.text import count, counted, duration, some, visible
from karrot.web.context import WebContext, if_readable
from karrot.web.pages.group_list import ranked_groups
from karrot.web.pages.page_cache import page_cache

_ENOUGH = 10
"""After this number of WARN and ERR verdicts without any OK, Burrow is probably configured not to send OK."""

_LONGEST_ERROR = 300
_REFUSED_LOOKED_AT = 50
_DAY_MS = 86_400_000
_LEFT_OUT = "groups left out"
_WEBHOOK_EVENTS = telemetry.WEBHOOK_EVENTS.name


class Heard(NamedTuple):
    """The seconds since a cluster's newest event. ``None`` for an expected cluster that never sent an event.

    ``late`` becomes true after half of the time until ``silent``.
    """

    cluster: str
    seconds: float | None
    silent: bool
    late: bool = False


class Banner(NamedTuple):
    """A problem and its remedy. Both strings may contain code between backticks.

    ``runbook`` names a runbook. ``page`` is a page with details: ``rejects`` or the name of a reporter.
    """

    kind: Literal["err", "warn"]
    wrong: str
    remedy: str
    runbook: str
    page: str = ""


class BannerInputs(NamedTuple):
    """The facts from which `banners` makes the banners.

    ``refused`` counts the refusals of the last minutes by code. ``kinds`` counts webhook events since the log began.
    ``has_replicas`` says that the event log is in PostgreSQL, and ``leader`` is the replica that leads.
    """

    fault: str | None = None
    has_replicas: bool = False
    leader: str | None = None
    heard: Sequence[Heard] = ()
    kinds: Mapping[str, float] = {}
    refused: Mapping[str, int] = {}
    groups: int = 0
    max_groups: int = 0
    failing: Sequence[ReporterState] = ()
    reporters: Sequence[str] = ()
    left_out: Mapping[str, str] = {}
    burrow_behind: Sequence[str] = ()
    cut_off: Collection[str] = ()


class Refusals(NamedTuple):
    """The number of refused bodies that the log keeps, and of those of the last 24 hours, both at most 50."""

    kept: int
    lately: int


class ServiceHealth(NamedTuple):
    """The content above every list of groups. ``states`` has the state of each reporter and duty.

    ``poll`` is the last poll of ``watch``. ``unjudged`` counts the groups of a recent poll that have no verdict yet.
    """

    banners: list[Banner]
    heard: list[Heard]
    states: Mapping[str, str]
    poll: WatchedCluster | None
    cut_off: Collection[str] = ()
    unjudged: int = 0

    @property
    def doubt(self) -> str:
        """Why the statuses can be old, worst first. Empty if they are not."""
        reasons = {
            "watch fails": self.states.get(WATCH) == "failing",
            "Burrow is silent": any(each.silent for each in self.heard),
            "Burrow reads no commits": self.cut_off,
            "Burrow is late": any(each.late for each in self.heard),
        }
        return next((reason for reason, is_true in reasons.items() if is_true), "")


def doubt(context: WebContext) -> str:
    """The doubt for the corner of every page, at most five seconds old."""
    read = partial(if_readable, lambda: service_health(context).doubt, "")
    return page_cache().get(doubt, read)[0]


def outage(context: WebContext) -> Banner | None:
    """Make the banner of every page while PostgreSQL is unreachable and the groups come from memory."""
    age_ms = context.log.memory_age_ms()
    if age_ms is None:
        return None
    return Banner(
        "err",
        f"The database of the event log is away, so the groups are from {duration(age_ms / 1000)} ago: "
        f"{visible((context.log.writable() or 'it does not answer')[:_LONGEST_ERROR])}",
        "Check that PostgreSQL runs and that this replica reaches it. Until then, new verdicts are lost, and a group "
        f"leaves the list {duration(context.stale_after_ms / 1000)} after its last event.",
        "KarrotLogNotWritable",
    )


def refusals(context: WebContext) -> Refusals:
    """Count the refused bodies for the menu."""
    read = partial(if_readable, partial(context.log.rejects, _REFUSED_LOOKED_AT), ())
    found, _ = page_cache().get(Refusals, read)
    now_ms = context.clock.wall_ms()
    return Refusals(len(found), sum(0 <= now_ms - each.received_at_ms <= _DAY_MS for each in found))


def service_health(context: WebContext) -> ServiceHealth:
    """Read the present health of the service."""
    log, now_ms = context.log, context.clock.wall_ms()
    kept = {state.name: state for state in log.reporters()}
    ranked = ranked_groups()
    live = ranked.worst_first
    poll = if_readable(lambda: watch_data_of_groups.read(log), None) if WATCH in context.duties else None
    heard, cut_off = _heard(context, live, poll), burrow_cut_off.cut_off(log)
    rejects = if_readable(lambda: log.rejects(_REFUSED_LOOKED_AT), ())
    notes = {name: if_readable(partial(log.recall, name, REPORT_NOTE), None) for name in context.reporters}
    facts = [(name, fact) for name, note in notes.items() if (report := read_report(note)) for fact in report.facts]
    names = (*context.reporters, *context.duties)
    states = {name: kept[name].state if name in kept else "idle" for name in names}
    seen = BannerInputs(
        # While the log cannot be read, every page has the banner of `outage`.
        fault=log.writable() if log.memory_age_ms() is None else None,
        has_replicas=log.replica is not None,
        leader=if_readable(log.leader, None),
        heard=heard,
        kinds={dict(each.labels)["kind"]: each.value for each in log.counters() if each.name == _WEBHOOK_EVENTS},
        refused=Counter(each.code for each in rejects if 0 <= now_ms - each.received_at_ms <= 1000 * REFUSED_LATELY_S),
        groups=len(live),
        max_groups=context.max_consumers,
        failing=[kept[name] for name in names if name in kept and kept[name].state == "failing"],
        reporters=context.reporters,
        left_out={name: fact.text for name, fact in facts if fact.name == _LEFT_OUT and fact.text != "0"},
        burrow_behind=ranked.burrow_behind,
        cut_off=cut_off,
    )
    unjudged = 0
    if poll is not None and log.log_time_ms() - poll.log_time_ms <= poll.good_for_ms:
        judged = {state.key.consumer for state in live if state.key.cluster == poll.cluster}
        unjudged = sum(group.state != "Dead" and group.consumer not in judged for group in poll.groups)
    return ServiceHealth(banners(seen), heard, states, poll, cut_off, unjudged)


def banners(seen: BannerInputs) -> list[Banner]:
    """Make the banners, errors first."""
    return [*_errors(seen), *_warnings(seen)]


def _errors(seen: BannerInputs) -> Iterator[Banner]:
    if seen.fault is not None:
        yield Banner(
            "err",
            f"Karrot cannot store events: {visible(seen.fault)}",
            (
                "Give the PostgreSQL server free space, and check that it is not read-only and that its synchronous "
                "standby answers."
                if seen.has_replicas
                else "Give the disk of `KARROT_DATA_DIR` free space and write permission."
            )
            + " Until then, new verdicts are lost.",
            "KarrotLogNotWritable",
        )
    elif seen.has_replicas and seen.leader is None:
        yield Banner(
            "err",
            "No replica leads, so no reporter gets events, and old events are not deleted.",
            "A replica takes the lead within 15 s after the leader is gone. If none does, check the connections of the "
            "PostgreSQL server. `karrot doctor` checks them.",
            "KarrotNoLeader",
        )
    if silent := [each for each in seen.heard if each.silent]:
        names = some([visible(each.cluster) for each in silent])
        since, old, gone = "never sent an event", "", "take it out of `KARROT_EXPECTED_CLUSTERS`"
        if ages := [each.seconds for each in silent if each.seconds is not None]:
            since, gone = f"has been silent for {duration(max(ages))}", "run `karrot forget-cluster`"
            old = ": the values of its groups are old, and its groups leave the list"
        also, first = (", or Karrot refused its events", "First fix the refusals. ") if seen.refused else ("", "")
        yield Banner(
            "err",
            f"Burrow {since}{also} ({names}){old}.",
            f"{first}Check that Burrow runs and reaches its ZooKeeper. Run `karrot send-sample --karrot` with the URL "
            "of this page on Burrow's host. `karrot doctor` checks both sides. "
            f"If the cluster is gone, {gone}.",
            "KarrotBurrowSilent",
        )
    if seen.cut_off:
        yield Banner(
            "err",
            f"Burrow reads no commits ({some([visible(name) for name in sorted(seen.cut_off)])}). Its lags are old.",
            "Check that Kafka runs, and that Burrow reaches it and may read `__consumer_offsets`: see Burrow's log.",
            "KarrotBurrowCutOff",
        )
    for state in seen.failing:
        of_ours = state.name in seen.reporters
        yield Banner(
            "err",
            f"{visible(state.name)} is failing: {visible((state.last_error or 'it gives no reason')[:_LONGEST_ERROR])}",
            "It retries by itself" + (", and loses no event that the event log still keeps." if of_ours else "."),
            runbook_of_failing(state.name),
            state.name if of_ours else "",
        )


def _warnings(seen: BannerInputs) -> Iterator[Banner]:
    if seen.burrow_behind:
        yield Banner(
            "warn",
            f"The Burrow of {some([visible(name) for name in seen.burrow_behind])} itself is behind on "
            "`__consumer_offsets`: every lag that it reports is old.",
            "Give Burrow more CPU, or raise `workers` in the storage section of its burrow.toml.",
            "KarrotBurrowLagging",
        )
    for code, number in seen.refused.items():
        yield Banner(
            "warn",
            f"{counted(number, 'body was', 'bodies were')} refused in the last {duration(REFUSED_LATELY_S)}: `{code}`.",
            CODES[code].remedy if code in CODES else "",
            "KarrotRejectingEvents",
            "rejects",
        )
    if not seen.kinds.get("observation") and seen.kinds.get("incident", 0) >= _ENOUGH:
        yield Banner(
            "warn",
            "Burrow has sent only WARN and ERR, so Karrot does not know which groups are OK.",
            "In the notifier's section of burrow.toml, set `threshold = 1` (the default is 2) and remove `send-once`. "
            "`karrot burrow-config` prints the section.",
            "KarrotOnlyUnhealthyVerdicts",
        )
    if 0 < seen.max_groups <= seen.groups:
        yield Banner(
            "warn",
            f"Karrot has reached its limit of groups ({count(seen.groups)}). It hides all other groups.",
            "Raise `KARROT_MAX_CONSUMERS` or exclude groups: denylist with Burrow, `KARROT_WATCH_EXCLUDE_GROUPS` with "
            "watch.",
            "KarrotSeriesDropped",
        )
    for name, left_out in seen.left_out.items():
        yield Banner(
            "warn",
            f"{visible(name)} leaves out {visible(left_out)} groups.",
            f"Raise `KARROT_{name.upper()}_MAX_GROUPS`, or select groups with `_INCLUDE` and `_EXCLUDE`.",
            "KarrotCloudWatchOverCap",
            name,
        )


def _heard(context: WebContext, live: Iterable[GroupState], poll: WatchedCluster | None) -> list[Heard]:
    """The clusters with a Burrow, silent clusters first. A cluster with verdicts from Kafka needs no Burrow."""
    now_ms, heard_ms = context.clock.wall_ms(), context.log.heard()
    ages = {cluster: max(0, now_ms - at_ms) / 1000 for cluster, at_ms in heard_ms.items()}
    longest = context.stale_after_ms / 1000
    heard = [Heard(cluster, age, age > longest, longest / 2 < age <= longest) for cluster, age in ages.items()]
    heard += [Heard(cluster, None, silent=True) for cluster in context.expected_clusters if cluster not in ages]
    if any(each.silent for each in heard):
        from_kafka = {state.key.cluster.casefold() for state in live if state.summary.source is Source.KAFKA}
        if poll is not None:
            from_kafka.add(poll.cluster.casefold())
        heard = [each for each in heard if not each.silent or each.cluster.casefold() not in from_kafka]
    return sorted(heard, key=lambda one: (not one.silent, one.cluster))
