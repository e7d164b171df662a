"""Runs the doctor: reads the programs whose URLs are given, and runs every check on the data."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from karrot.doctor.checks import (
    Check,
    Finding,
    Level,
    burrow_notifier,
    burrow_storage,
    storing_and_delivering,
    verdicts_arrive_in_time_and_unchanged,
)
from karrot.doctor.read_and_check_prometheus import PrometheusSeen, read_prometheus, target
from karrot.doctor.read_burrow import BurrowSeen, read_burrow
from karrot.doctor.read_karrot import KarrotSeen, read_karrot
from karrot.doctor.reader_helpers import Unreachable, Unread, read_samples
from karrot.http_client import HttpClient, Limits, RequestFailed
from karrot.runbooks_and_remedies import WATCH

T = TypeVar("T")

_CHECKS: dict[tuple[str, ...], Sequence[Check]] = {
    ("Burrow",): (*burrow_notifier.CHECKS, *burrow_storage.CHECKS),
    ("Burrow", "Karrot"): verdicts_arrive_in_time_and_unchanged.CHECKS,
    ("Karrot",): storing_and_delivering.CHECKS,
    ("Prometheus",): (target,),
}
"""The checks by the programs that they need, in the order of the documentation."""

_ORDER = list(Level)
_WHERE = "burrow.md#karrot-doctor"
_REMEDIES = {
    "Burrow": "pass the URL of Burrow's [httpserver.default] as --burrow, such as http://burrow:8000",
    "Karrot": "pass Karrot's URL as --karrot, such as http://karrot:5000",
    "Prometheus": "pass Prometheus' URL as --prometheus, such as http://prometheus:9090",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The data read from each program; ``None`` for a program whose URL was not given."""

    burrow: BurrowSeen | Unreachable | None = None
    karrot: KarrotSeen | Unreachable | None = None
    prometheus: PrometheusSeen | Unreachable | None = None


def read_all(
    burrow: str | None = None,
    karrot: str | None = None,
    prometheus: str | None = None,
    *,
    token: str | None = None,
    limits: Limits | None = None,
) -> Snapshot:
    """Read the programs at these URLs, and change nothing there. ``token`` is Karrot's API token."""
    how = limits or Limits()
    of_burrow = _read(burrow, partial(read_burrow, limits=how, karrot_url=karrot))
    of_karrot = _read(karrot, partial(read_karrot, limits=how, token=token))
    if isinstance(of_burrow, BurrowSeen) and isinstance(of_karrot, KarrotSeen):
        of_karrot = replace(of_karrot, not_due=_not_due(of_burrow, of_karrot, how))
    return Snapshot(
        burrow=of_burrow,
        karrot=of_karrot,
        prometheus=_read(prometheus, partial(read_prometheus, limits=how, karrot_url=karrot)),
    )


def _not_due(burrow: BurrowSeen, karrot: KarrotSeen, limits: Limits) -> dict[str, float]:
    """Read when Burrow started, if Karrot misses its events: Burrow evaluates every group for its ``/metrics``."""
    due_s, never = 2 * burrow.interval + 60, float("inf")  # it sends nothing in its first 60 s
    missed = [cluster for cluster in burrow.groups if karrot.heard.get(cluster, never) > due_s]
    with suppress(RequestFailed), HttpClient(burrow.url, limits) as client:
        samples = read_samples(client) if missed else []
        starts = (each.value for each in samples if each.name == "process_start_time_seconds")
        age = max(0.0, karrot.now.timestamp() - next(starts, -never))
        return dict.fromkeys(missed, age) if age < due_s else {}
    return {}


def _read(url: str | None, read: Callable[[str], T]) -> T | Unreachable | None:
    try:
        return None if url is None else read(url)
    except RequestFailed as error:
        return Unreachable(str(url).rstrip("/"), error.said)


def all_checks() -> Iterator[tuple[str, Check]]:
    """Yield every check with the programs that it needs, in the order of the documentation."""
    return ((", ".join(needed), each) for needed, checks in _CHECKS.items() for each in checks)


def examine(seen: Snapshot) -> list[Finding]:
    """Return all findings, faults first. A missing URL is a finding, except for Burrow if watch judges the groups."""
    sides = {"Burrow": seen.burrow, "Karrot": seen.karrot, "Prometheus": seen.prometheus}
    has_watch = isinstance(seen.karrot, KarrotSeen) and WATCH in seen.karrot.components
    found: list[Finding] = []
    for name, side in sides.items():
        match side:
            case None if has_watch and name == "Burrow":
                continue
            case None:
                found.append(_finding(Level.NOTE, "side", f"{name} was not checked", _REMEDIES[name]))
            case Unreachable(url, error):
                what = f"{name} cannot be read at {url}: {error}"
                found.append(_finding(Level.FAULT, "side", what, _REMEDIES[name]))
            case _:
                found += _parts(name, side.unread)
    read = {name: side for name, side in sides.items() if side is not None and not isinstance(side, Unreachable)}
    for needed in sorted(_CHECKS, key=len):
        if read.keys() >= set(needed):
            for check in _CHECKS[needed]:
                found += check(*(read[name] for name in needed))
    return sorted(found, key=lambda finding: _ORDER.index(finding.level))


def _parts(side: str, unread: Sequence[Unread]) -> Iterator[Finding]:
    """Yield a warning for each part that could not be read, and one for all parts that need Karrot's API token."""
    closed = [part.what for part in unread if side == "Karrot" and "HTTP 401" in part.error]
    if closed:
        what = f"Karrot: {', '.join(closed)} could not be read without the API token (HTTP 401)"
        remedy = "set KARROT_API_TOKEN (or _FILE) in the environment of karrot doctor"
        yield _finding(Level.WARN, "part", what, remedy)
    for part in unread:
        if part.what not in closed:
            what = f"{side}: {part.what} could not be read: {part.error}"
            yield _finding(Level.WARN, "part", what, f"check the answer of {side} there")


def _finding(level: Level, check: str, what: str, remedy: str) -> Finding:
    return Finding(level, check, what, remedy, _WHERE)
