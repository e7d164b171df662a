"""Finds faults between Burrow, Karrot and Prometheus, and says for each fault which line of configuration fixes it.

`look` reads each side once into frozen values. Each check is a pure function of these values.
"""

from karrot.doctor.checks import Finding, Level
from karrot.doctor.read_and_check import examine, look
from karrot.doctor.snapshot_types import Snapshot

__all__ = ["Finding", "Level", "Snapshot", "examine", "look"]
