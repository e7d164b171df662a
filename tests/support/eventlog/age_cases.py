"""Cases for the age of a message from the log ends of its partition. The service and the pipeline have one rule."""

from typing import Final, NamedTuple

from karrot.event import AgeKind
from karrot.eventlog.log_end_history import Age

EXACT, EXTRAPOLATED, AT_LEAST = AgeKind


class AgeCase(NamedTuple):
    """Log ends as (seconds ago, offset), oldest first, a committed offset, and the age that follows.

    ``refresh_ms`` is how old the log ends of the source can be.
    """

    log_ends: tuple[tuple[float, int], ...]
    committed: int
    age: Age
    refresh_ms: int = 0


AGE_CASES: Final = {
    "between two log ends": AgeCase(((100, 1000), (0, 2000)), 1500, Age(50.0, EXACT)),
    "at a log end": AgeCase(((100, 1000), (50, 1400), (0, 2000)), 1400, Age(50.0, EXACT)),
    "at the newest log end": AgeCase(((100, 1000), (20, 2000)), 2000, Age(20.0, EXACT)),
    "a log that stood still counts from the end of that time": AgeCase(
        ((300, 1000), (200, 1000), (100, 1000), (0, 2000)), 1000, Age(100.0, EXACT)
    ),
    "below the oldest log end by less than the samples cover": AgeCase(
        ((100, 1000), (50, 1500), (0, 4000)), 500, Age(150.0, EXTRAPOLATED)
    ),
    "extrapolated by the rate of the oldest samples alone": AgeCase(
        ((100, 1000), (90, 1100), (80, 1200), (0, 9000)), 850, Age(115.0, EXTRAPOLATED)
    ),
    "extrapolated by the first of two equal log ends": AgeCase(
        ((100, 1000), (60, 1200), (20, 1200), (0, 4000)), 800, Age(140.0, EXTRAPOLATED)
    ),
    "below the oldest log end by more than the samples cover": AgeCase(
        ((100, 1000), (0, 1400)), 500, Age(100.0, AT_LEAST)
    ),
    "an idle producer that was never seen to write": AgeCase(((100, 1000), (0, 1000)), 500, Age(100.0, AT_LEAST)),
    "one log end": AgeCase(((10, 1000),), 500, Age(10.0, AT_LEAST)),
    "one log end, at the committed offset": AgeCase(((10, 1000),), 1000, Age(10.0, EXACT)),
    "a verdict that is older than the newest log end": AgeCase(((0, 1000), (-30, 2000)), 1500, Age(0.0, EXACT)),
    "committed offset zero": AgeCase(((100, 0), (0, 1000)), 0, Age(100.0, EXACT)),
    "log ends of Burrow are half a refresh old on average": AgeCase(
        ((100, 1000), (0, 2000)), 1500, Age(54.95, EXACT), 10_000
    ),
    "fewer messages than one per refresh need no correction": AgeCase(
        ((100, 1000), (0, 1010)), 1005, Age(50.0, EXACT), 10_000
    ),
    "an offset at which the log was seen to end needs no correction": AgeCase(
        ((100, 1000), (50, 1500), (0, 2000)), 1500, Age(50.0, EXACT), 10_000
    ),
    "a log that stood still for one refresh of Burrow counts from its start": AgeCase(
        ((30, 1000), (22, 1000), (0, 2000)), 1000, Age(30.0, EXACT), 10_000
    ),
    "a log that stood still for longer than a refresh counts from its end": AgeCase(
        ((40, 1000), (22, 1000), (0, 2000)), 1000, Age(22.0, EXACT), 10_000
    ),
    "an extrapolated age of Burrow's log ends": AgeCase(
        ((100, 1000), (50, 1500), (0, 4000)), 500, Age(154.95, EXTRAPOLATED), 10_000
    ),
    "a lower bound is never corrected": AgeCase(((100, 1000), (0, 1100)), 0, Age(100.0, AT_LEAST), 10_000),
}
