"""What a run is about: its groups, what is expected of each, and when things happen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CLUSTER: Final = "truth"
ELSEWHERE: Final = "elsewhere-"
"""The beginning of the names of groups that keep their offsets outside Kafka."""

NIGHTLY: Final = "nightly-"
"""The beginning of the names of groups whose jobs ended before Karrot started: only their names say what they are."""

INTERVAL_S: Final = 2
WINDOW_S: Final = 10 * INTERVAL_S
LONGEST_FOR_S: Final = 300
"""How long the rules for groups wait before they fire, except those about an hour or about a deleted group."""

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True)
class Proof:
    """What Karrot must show about a fault.

    In the API, no other partitions are bad than these, each with one of these statuses and with the committed offset
    that Kafka has, and with its owner if the consumer is alive. The group's page has a sentence and a row that say the
    same, and these words.
    """

    places: Mapping[Place, frozenset[str]]
    words: tuple[str, ...] = ()
    has_owner: bool = False


@dataclass
class Case:
    """A group of one kind. A harmless group has no ``proof``. Times are seconds since Karrot's start."""

    kind: str
    group: str
    proof: Proof | None = None
    alerts: tuple[str, ...] = ()
    commit_gap_s: float = 0
    planted_at: float | None = None
    note: str = ""

    @property
    def limit_s(self) -> float:
        """How soon the fault must be found."""
        return max(2 * WINDOW_S, 3 * self.commit_gap_s)


@dataclass
class Sighting:
    """What Karrot said about one group during the run."""

    found_at: float | None = None
    incidents: int = 0
    open_at_end: bool = False
    lack: str = "no proof was seen"
    lack_at_end: str = "no proof was seen"
    sentence: str = ""
    changes: list[tuple[float, str, str]] = field(default_factory=list)
    alerts: dict[str, list[float]] = field(default_factory=dict)
    """The starts of each alert's firing, by the alert's name."""


@dataclass(frozen=True)
class Timetable:
    """When things happen, in seconds since Karrot's start.

    Faults are planted when each group has had some full windows. Alerts about them fire before the broker is killed,
    and false alerts after the kill have time to fire before the end.
    """

    minutes: float

    @property
    def end(self) -> float:
        return self.minutes * 60

    @property
    def plants(self) -> tuple[float, float]:
        """The first and the last time at which a fault is planted."""
        return 90, min(210, self.kill - 180)

    @property
    def kill(self) -> float:
        """When the broker is killed."""
        return self.end - LONGEST_FOR_S - 2 * WINDOW_S - 90

    @property
    def asked(self) -> float:
        """When the causes of all explained faults have been asked."""
        return self.plants[1] + 140

    def is_calm(self, at: float) -> bool:
        """Return whether the broker is neither down nor about to be."""
        return not self.kill - 60 < at < self.kill + 90
