"""What is wrong between Burrow, Karrot and Prometheus, and the line that mends it.

A side is read once (`look`), into frozen values; each check is a pure function of them.
"""

from karrot.doctor.collect_snapshot import look
from karrot.doctor.finding import Finding, Level
from karrot.doctor.run_checks import examine
from karrot.doctor.snapshot import Snapshot

__all__ = ["Finding", "Level", "Snapshot", "examine", "look"]
