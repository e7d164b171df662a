"""Finds what is wrong between Burrow, Karrot and Prometheus, and names the line that fixes it.

`look` reads each side once, into frozen values; each check is a pure function of them.
"""

from karrot.doctor.collect_snapshot import look
from karrot.doctor.finding import Finding, Level
from karrot.doctor.run_checks import examine
from karrot.doctor.snapshot import Snapshot

__all__ = ["Finding", "Level", "Snapshot", "examine", "look"]
