"""Lists all checks, by the sides that they need. Each looks for one trap in the snapshot."""

from collections.abc import Iterator
from typing import Any

from karrot.doctor.checks import burrow, burrow_and_karrot, burrow_notifier, karrot, prometheus_scrape
from karrot.doctor.finding import Check

__all__ = ["AGREEMENT", "BURROW", "KARROT", "PROMETHEUS", "SCRAPE", "all_checks"]

BURROW = (*burrow_notifier.CHECKS, *burrow.CHECKS)
KARROT = karrot.CHECKS
AGREEMENT = burrow_and_karrot.CHECKS
PROMETHEUS = prometheus_scrape.ALONE
SCRAPE = prometheus_scrape.WITH_KARROT


def all_checks() -> Iterator[tuple[str, Check[Any]]]:
    """Every check with the sides it needs, in the order of the documentation."""
    for sides, checks in (
        ("Burrow", BURROW),
        ("Burrow, Karrot", AGREEMENT),
        ("Karrot", KARROT),
        ("Prometheus", PROMETHEUS),
        ("Karrot, Prometheus", SCRAPE),
    ):
        yield from ((sides, each) for each in checks)
