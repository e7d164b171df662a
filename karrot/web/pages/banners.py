"""Reads what the pages say of Burrow, Karrot and the reporters above the list of groups: banners and states."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from karrot import burrow_cut_off, telemetry
from karrot.event import Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import GroupState, ReporterState
from karrot.eventlog.watch_data_of_groups import WatchedCluster
from karrot.reporters.base import REPORT_NOTE, read_report
from karrot.runbooks_and_remedies import REFUSED_LATELY_S, WATCH
from karrot.web.context import WebContext, if_readable
from karrot.web.pages.group_list import ranked_groups
from karrot.web.pages.page_cache import page_cache

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


class Refusals(NamedTuple):
    """The number of refused bodies that the log keeps, and of those of the last 24 hours, both at most 50."""

    kept: int
    lately: int


class ServiceHealth(NamedTuple):
    """What the pages say of Burrow, Karrot and the reporters. The template ``banners.html`` has the words.

    ``refused`` counts the refusals of the last minutes by code. ``kinds`` counts webhook events since the log began.
    ``has_replicas`` says that the event log is in PostgreSQL, and ``leader`` is the replica that leads. ``states`` has
    the state of each reporter and duty. ``poll`` is the last poll of ``watch``. ``unjudged`` counts the groups of a
    recent poll that have no verdict yet.
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
    states: Mapping[str, str] = {}
    poll: WatchedCluster | None = None
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


def outage(context: WebContext) -> tuple[float, str, float] | None:
    """While PostgreSQL is unreachable: the age of the groups in memory, the reason, and the age at which they go."""
    if (age_ms := context.log.memory_age_ms()) is None:
        return None
    return age_ms / 1000, context.log.writable() or "it does not answer", context.stale_after_ms / 1000


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
    unjudged = 0
    if poll is not None and log.log_time_ms() - poll.log_time_ms <= poll.good_for_ms:
        judged = {state.key.consumer for state in live if state.key.cluster == poll.cluster}
        unjudged = sum(group.state != "Dead" and group.consumer not in judged for group in poll.groups)
    return ServiceHealth(
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
        states=states,
        poll=poll,
        unjudged=unjudged,
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
