"""Runs the checks on a snapshot, and reports the sides that could not be read."""

from collections.abc import Iterator

from karrot.doctor import checks
from karrot.doctor.finding import Finding, Level
from karrot.doctor.snapshot import Away, BurrowSeen, KarrotSeen, PrometheusSeen, Snapshot, Unread

__all__ = ["examine"]

_ORDER = list(Level)
_WHERE = "burrow.md#karrot-doctor"
_REMEDIES = {
    "Burrow": "--burrow with the address of Burrow's [httpserver.default], such as http://burrow:8000",
    "Karrot": "--karrot with Karrot's address, such as http://karrot:5000",
    "Prometheus": "--prometheus with its address, such as http://prometheus:9090",
}


def examine(seen: Snapshot) -> list[Finding]:
    """All findings, faults first."""
    found = [*_sides(seen), *_alone(seen), *_together(seen)]
    return sorted(found, key=lambda finding: _ORDER.index(finding.level))


def _alone(seen: Snapshot) -> Iterator[Finding]:
    if isinstance(seen.burrow, BurrowSeen):
        for of_burrow in checks.BURROW:
            yield from of_burrow(seen.burrow)
    if isinstance(seen.karrot, KarrotSeen):
        for of_karrot in checks.KARROT:
            yield from of_karrot(seen.karrot)
    if isinstance(seen.prometheus, PrometheusSeen):
        for of_prometheus in checks.PROMETHEUS:
            yield from of_prometheus(seen.prometheus)


def _together(seen: Snapshot) -> Iterator[Finding]:
    if isinstance(seen.burrow, BurrowSeen) and isinstance(seen.karrot, KarrotSeen):
        for of_both in checks.AGREEMENT:
            yield from of_both(seen.burrow, seen.karrot)
    if isinstance(seen.karrot, KarrotSeen) and isinstance(seen.prometheus, PrometheusSeen):
        for of_scrape in checks.SCRAPE:
            yield from of_scrape(seen.karrot, seen.prometheus)


def _sides(seen: Snapshot) -> Iterator[Finding]:
    for name, side in (("Burrow", seen.burrow), ("Karrot", seen.karrot), ("Prometheus", seen.prometheus)):
        match side:
            case None:
                yield _finding(Level.NOTE, "side", f"{name} was not looked at", _REMEDIES[name])
            case Away(_, url, said):
                yield _finding(Level.FAULT, "side", f"{name} cannot be read at {url}: {said}", _REMEDIES[name])
            case _:
                yield from (_part(name, each) for each in side.unread)


def _part(side: str, part: Unread) -> Finding:
    is_closed = side == "Karrot" and "401" in part.said
    remedy = (
        "KARROT_API_TOKEN (or _FILE) in the environment of karrot doctor" if is_closed else f"what {side} answers there"
    )
    return _finding(Level.WARN, "part", f"{side}: {part.what} could not be read: {part.said}", remedy)


def _finding(level: Level, check: str, what: str, remedy: str) -> Finding:
    return Finding(level, check, what, remedy, _WHERE)
