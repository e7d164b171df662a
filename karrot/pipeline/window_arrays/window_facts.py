"""Judges Burrow's windows of commits by Burrow's rules (`karrot.burrow.rules`), for all partitions at once."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from karrot.burrow import rules as burrow_rules
from karrot.event import OffsetSample, Status
from karrot.pipeline.window_arrays.commit_arrays import Bools, Ints
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

UNKNOWN_LAG = np.iinfo(np.int64).max
Codes = npt.NDArray[np.int8]
"""Burrow's numbers of statuses."""


class Windows(NamedTuple):
    """Windows, each as it is right after its newest commit. The fields are the facts that the rules need.

    ``least_lag`` is the lowest known lag of a window, or the largest number if no lag is known.
    """

    offset: Ints
    first_ms: Ints
    last_ms: Ints
    filled: Ints
    least_lag: Ints
    rewound: Bools
    stalled: Bools
    not_decreasing: Bools

    @classmethod
    def of(cls, offset: Ints, lag: Ints, first_ms: Ints, last_ms: Ints, filled: Ints) -> Self:
        """The facts of windows whose offsets and lags are rows of slots, oldest first.

        A window that is not full repeats its oldest slot, which changes no verdict.
        """
        return cls(
            offset=offset[:, -1],
            first_ms=first_ms,
            last_ms=last_ms,
            filled=filled,
            least_lag=lag.min(axis=1),
            rewound=_rewound(offset),
            stalled=(offset == offset[:, :1]).all(axis=1),
            not_decreasing=np.logical_and.reduce(lag[:, 1:] >= lag[:, :-1], axis=1),
        )


def judged(window: Windows, end: Ints, recent_least_end: Ints, now: Ints, rules: RuleSet) -> Codes:
    """Burrow's verdict on each window, by the first rule that applies.

    ``end`` is the newest log end at ``now`` (epoch seconds), ``recent_least_end`` the lowest of the recent log ends.
    """
    complete = (window.filled / rules.intervals).astype(np.float32) >= np.float32(rules.minimum_complete)
    is_judged = (end - window.offset > rules.allowed_lag) & complete
    is_late = now * 1000 - window.last_ms > window.last_ms - window.first_ms
    always_lags = window.least_lag > rules.allowed_lag
    first_that_applies: list[tuple[Bools, Status]] = [
        (~is_judged, Status.OK),
        (is_late & (recent_least_end > window.offset), Status.STOP),
        (window.rewound, Status.REWIND),
        (always_lags & window.stalled, Status.STALL),
        (always_lags & window.not_decreasing, Status.WARN),
    ]
    conditions = [condition for condition, _ in first_that_applies]
    return np.select(conditions, [int(status) for _, status in first_that_applies], Status.OK).astype(np.int8)


def facts_of(kept: Sequence[OffsetSample]) -> dict[str, int]:
    """Compute the facts of one window with these commits, by the reference model."""
    rewind = burrow_rules.rewind_index(kept)
    return {
        "offset": kept[-1].offset,
        "first_ms": kept[0].timestamp_ms,
        "last_ms": kept[-1].timestamp_ms,
        "filled": len(kept),
        "least_lag": min((sample.lag for sample in kept if sample.lag is not None), default=UNKNOWN_LAG),
        "rewound": rewind is not None and not burrow_rules.has_recovered(kept, rewind),
        "stalled": burrow_rules.is_stalled(kept),
        "not_decreasing": burrow_rules.is_lag_not_decreasing(kept),
    }


def _rewound(offset: Ints) -> Bools:
    """Whether the offset decreased, and stayed below its value before the first decrease."""
    falls = offset[:, 1:] < offset[:, :-1]
    found: Bools = np.logical_or.reduce(falls, axis=1)
    fallen = np.flatnonzero(found)
    if not len(fallen):
        return found
    before = falls[fallen].argmax(axis=1)
    lost = offset[fallen, before]
    after = np.arange(offset.shape[1]) > before[:, None]
    found[fallen] = ~((offset[fallen] >= lost[:, None]) & after).any(axis=1)
    return found
