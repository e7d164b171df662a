"""What the pages can say is wrong, and the runbook for each trouble: the name of its alert."""

from collections.abc import Mapping
from typing import Literal

__all__ = ["RUNBOOKS", "Trouble", "runbook_of_failing"]

Trouble = Literal[
    "partition stopped",
    "partition stalled",
    "partition went back",
    "partition not listed",
    "catching up",
    "too slow",
    "one partition",
    "group overdue",
    "Burrow behind",
    "Burrow silent",
    "only unhealthy verdicts",
    "log not writable",
    "events refused",
    "too many groups",
    "groups left out of CloudWatch",
    "cloudwatch failing",
    "resync failing",
    "watch failing",
    "reporter failing",
]

RUNBOOKS: Mapping[Trouble, str] = {
    "partition stopped": "KarrotPartitionStopped",
    "partition stalled": "KarrotPartitionStopped",
    "partition went back": "KarrotConsumerError",  # the one that explains REWIND
    "partition not listed": "KarrotConsumerError",
    "catching up": "KarrotConsumerLagGrowing",
    "too slow": "KarrotConsumerLagGrowing",
    "one partition": "KarrotConsumerLagGrowing",
    "group overdue": "KarrotConsumerVanished",
    "Burrow behind": "KarrotBurrowLagging",
    "Burrow silent": "KarrotBurrowSilent",
    "only unhealthy verdicts": "KarrotOnlyUnhealthyVerdicts",
    "log not writable": "KarrotLogNotWritable",
    "events refused": "KarrotRejectingEvents",
    "too many groups": "KarrotSeriesDropped",
    "groups left out of CloudWatch": "KarrotCloudWatchOverCap",
    "cloudwatch failing": "KarrotCloudWatchRefusing",
    "resync failing": "KarrotBurrowSilent",  # Burrow does not answer Karrot's questions
    "watch failing": "KarrotWatchSilent",
    "reporter failing": "KarrotReporterBacklog",
}

_FAILING: Mapping[str, Trouble] = {
    "cloudwatch": "cloudwatch failing",
    "resync": "resync failing",
    "watch": "watch failing",
}


def runbook_of_failing(name: str) -> str:
    """The runbook for a reporter or another duty that fails."""
    return RUNBOOKS[_FAILING.get(name, "reporter failing")]
