"""Reads Karrot's targets from Prometheus, and checks that Prometheus scrapes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from karrot.doctor.checks import Problem, check, fault, only_if
from karrot.doctor.reader_helpers import Parts, Unread, netloc
from karrot.http_client import HttpClient, Limits

T = TypeVar("T")

_MOVED = 'count({__name__=~"karrot_.+",exported_cluster!=""})'


class _Reply(Struct, Generic[T]):
    data: T


class _Result(Struct):
    metric: dict[str, str]


class _Vector(Struct):
    result: list[_Result]


class _Scalar(Struct):
    result: tuple[float, str]


class Target(Struct, frozen=True, rename="camel"):
    """A target as Prometheus' ``/api/v1/targets`` returns it."""

    scrape_url: str
    health: str
    labels: dict[str, str]
    last_error: str = ""


class _ActiveTargets(Struct, rename="camel"):
    active_targets: list[Target]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSeen:
    """The targets that belong to Karrot.

    ``has_moved`` is true if Prometheus renamed a label ``cluster`` of Karrot to ``exported_cluster``.
    """

    targets: Sequence[Target] = ()
    has_moved: bool = False
    unread: Sequence[Unread] = ()


def read_prometheus(url: str, limits: Limits, *, karrot_url: str | None = None) -> PrometheusSeen:
    """Read Prometheus' state. Raises `RequestFailed` if Prometheus does not answer at the URL."""
    parts = Parts()
    with HttpClient(url, limits) as client:
        client.read(_Reply[_Scalar], "/api/v1/query", {"query": "time()"})  # only a Prometheus answers this
        read_targets = partial(client.read, _Reply[_ActiveTargets], "/api/v1/targets", {"state": "active"})
        reply = parts.read("targets", read_targets, None)
        built = parts.read("karrot_build_info", partial(_query, client, "karrot_build_info"), [])
        moved = parts.read("exported_cluster", partial(_query, client, _MOVED), [])
    instances = {(each.metric.get("job", ""), each.metric.get("instance", "")) for each in built}
    targets = reply.data.active_targets if reply else []
    return PrometheusSeen(
        targets=[each for each in targets if _is_karrots(each, instances, karrot_url)],
        has_moved=bool(moved),
        unread=tuple(parts.unread),
    )


def _query(client: HttpClient, expression: str) -> list[_Result]:
    return client.read(_Reply[_Vector], "/api/v1/query", {"query": expression}).data.result


def _is_karrots(target: Target, instances: set[tuple[str, str]], karrot_url: str | None) -> bool:
    job, instance = target.labels.get("job", ""), target.labels.get("instance", "")
    if (job, instance) in instances or "karrot" in f"{job} {target.scrape_url}".lower():
        return True
    return karrot_url is not None and netloc(target.scrape_url) == netloc(karrot_url)


@check("KarrotAbsent", success="Prometheus scrapes Karrot", where="burrow.md#karrot-doctor")
def target(seen: PrometheusSeen) -> Iterator[Problem]:
    """Prometheus does not scrape Karrot, cannot read it, or renames a label of its metrics."""
    only_if(not any(each.what == "targets" for each in seen.unread))
    if not seen.targets:
        yield fault(
            "Prometheus has no target that is Karrot",
            "add scrape_configs: "
            "[{job_name: karrot, honor_labels: true, static_configs: [{targets: ['karrot:5000']}]}]",
        )
    if seen.has_moved:
        yield fault(
            "Prometheus renames Karrot's label cluster to exported_cluster",
            "set honor_labels: true in the scrape config (honorLabels: true in a ServiceMonitor)",
        )
    for each in seen.targets:
        if each.health == "down":
            yield fault(f"{each.scrape_url} is down: {each.last_error}", f"fix this cause; try curl {each.scrape_url}")
