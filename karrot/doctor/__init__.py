"""Finds faults between Burrow or evaluate, Karrot and Prometheus. For each fault, it names the line to change.

`look` reads the programs once, into frozen values. Each check is a pure function of these values.
"""

from karrot.doctor.checks import Finding, Level
from karrot.doctor.run_all_checks import Snapshot, examine, look

__all__ = ["Finding", "Level", "Snapshot", "examine", "look"]
