"""Computes the outage of a restart: how long the fake Burrow is down, starting and loading."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class OutageState(Enum):
    """What Burrow's HTTP server says: nothing, ``STARTING`` or ``READY``."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Outage:
    """What a restart costs, in simulated seconds one after the other.

    ``down``: nobody listens. ``starting``: Burrow listens, is not ready and lists nothing. ``loading``: it is ready,
    lists topics and no group, until it has read ``__consumer_offsets``. From its beginning that is the last commit of
    each partition; with ``start_latest`` it is nothing, and groups come as they commit, without owners.
    """

    down: float = 1.0
    starting: float = 1.0
    loading: float = 5.0
    start_latest: bool = False

    def begins(self, at: float) -> "RestartTimes":
        """The start that ends an outage."""
        return RestartTimes(
            at + self.down, at + self.down + self.starting, at + self.down + self.starting + self.loading
        )


class RestartTimes(NamedTuple):
    """When Burrow listens, is ready and has read what was written before."""

    listens_at: float
    ready_at: float
    loaded_at: float

    def state(self, at: float) -> OutageState:
        """What its HTTP server says at a time."""
        if at < self.listens_at:
            return OutageState.DOWN
        return OutageState.STARTING if at < self.ready_at else OutageState.READY


ALWAYS = RestartTimes(-math.inf, -math.inf, -math.inf)
"""Up since long ago."""
