"""Finds what is wrong between Burrow, Karrot and Prometheus, and names the line that fixes it.

`look` reads each side once, into frozen values; each check is a pure function of them.
"""

from karrot.doctor.checks import Finding, Level
from karrot.doctor.read_and_check import examine, look
from karrot.doctor.snapshot_types import Snapshot

__all__ = ["Finding", "Level", "Snapshot", "examine", "look"]
