"""How Karrot itself, Burrow and the reporters are: what the banners are made from."""

from collections import Counter
from typing import NamedTuple

from karrot import telemetry
from karrot.eventlog.base import ReporterState
from karrot.reporters.send_report import NOTE, read
from karrot.web.context import Site
from karrot.web.pages.banners import Banner, BannerInputs, Heard, banners
from karrot.web.pages.page_caches import caches

__all__ = ["Health", "ReporterHealth", "health"]

_REFUSED_WITHIN_S = 900
_REFUSED_LOOKED_AT = 50
_LEFT_OUT = "groups left out"


class ReporterHealth(NamedTuple):
    """One reporter or duty. ``state`` is the word that `/reporters` and the API use: ``idle``, ``ok`` or ``failing``.

    ``waiting`` counts events. It is ``None`` for a reporter to which Karrot delivers nothing, such as prometheus.
    """

    name: str
    state: str
    waiting: int | None
    is_reporter: bool


class Health(NamedTuple):
    """What stands above every list of groups."""

    banners: list[Banner]
    heard: list[Heard]
    reporters: list[ReporterHealth]


def health(here: Site) -> Health:
    """As of now."""
    heard = _heard(here)
    kept = {state.name: state for state in here.log.reporters()}
    ranked = caches().groups.ranked()
    seen = BannerInputs(
        fault=here.log.writable(),
        heard=heard,
        kinds=_kinds(here),
        refused=_refused(here),
        refused_within_s=_REFUSED_WITHIN_S,
        groups=len(ranked.worst_first),
        max_groups=here.max_consumers,
        failing=[
            kept[name] for name in (*here.reporters, *here.duties) if name in kept and kept[name].state == "failing"
        ],
        reporters=here.reporters,
        left_out=_left_out(here),
        burrow_behind=ranked.burrow_behind,
    )
    return Health(banners(seen), heard, _reporters(here, kept))


def _heard(here: Site) -> list[Heard]:
    """The clusters, those first that are silent."""
    now_ms, silent_after = here.clock.wall_ms(), here.stale_after_ms / 1000
    heard_ms = here.log.heard()
    ages = {cluster: max(0, now_ms - at_ms) / 1000 for cluster, at_ms in heard_ms.items()}
    heard = [Heard(cluster, age, age > silent_after) for cluster, age in ages.items()]
    heard += [Heard(cluster, None, silent=True) for cluster in here.expected_clusters if cluster not in ages]
    return sorted(heard, key=lambda one: (not one.silent, one.cluster))


def _kinds(here: Site) -> dict[str, float]:
    name = telemetry.WEBHOOK_EVENTS.name
    return {dict(each.labels)["kind"]: each.value for each in here.log.counters() if each.name == name}


def _refused(here: Site) -> Counter[str]:
    since_ms = here.clock.wall_ms() - 1000 * _REFUSED_WITHIN_S
    newest = here.log.rejects(_REFUSED_LOOKED_AT)
    return Counter(reject.code for reject in newest if reject.received_at_ms >= since_ms)


def _left_out(here: Site) -> dict[str, str]:
    reports = {name: read(here.log.recall(name, NOTE)) for name in here.reporters}
    facts = ((name, fact) for name, report in reports.items() if report for fact in report.facts)
    return {name: fact.text for name, fact in facts if fact.name == _LEFT_OUT and fact.text != "0"}


def _reporters(here: Site, kept: dict[str, ReporterState]) -> list[ReporterHealth]:
    size = here.log.size()
    found = []
    for name in (*here.reporters, *here.duties):
        state = kept.get(name) or ReporterState(name, None)
        waiting = None
        if state.cursor and state.cursor.log_id == here.log.log_id:
            waiting = max(0, size.last_seq - max(state.cursor.seq, size.first_seq - 1))
        found.append(ReporterHealth(name, state.state, waiting, name in here.reporters))
    return found
