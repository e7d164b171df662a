"""Finds faults between Burrow, Karrot and Prometheus. A finding names the configuration line to change.

`read_all` reads the programs once, into immutable values. Each check is a pure function of these values.
"""

from karrot.doctor.checks import Finding, Level
from karrot.doctor.run_all_checks import Snapshot, examine, read_all

__all__ = ["Finding", "Level", "Snapshot", "examine", "read_all"]
