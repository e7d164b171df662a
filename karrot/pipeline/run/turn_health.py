"""Says why ``karrot pipeline run`` is not healthy, for a probe."""

from datetime import timedelta
from typing import TYPE_CHECKING

from karrot.clock import Clock
from karrot.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from karrot.pipeline.run.turns import TurnLoop


class TurnHealth:
    """Says why the process is not healthy. While Spark starts, the process is healthy."""

    def __init__(self, clock: Clock, turn_limit: timedelta) -> None:
        self._clock, self._limit = clock, turn_limit
        self.watched: tuple[TurnLoop, Callable[[], bool]] | None = None

    def __call__(self) -> str | None:
        """Return the reason; ``None`` if the process is healthy."""
        if self.watched is None:
            return None
        turns, spark_is_alive = self.watched
        began = turns.started_ms
        if began is not None and self._clock.boot_ms() - began > self._limit.total_seconds() * 1000:
            return f"a turn has been running for more than {duration(self._limit.total_seconds())}"
        return None if spark_is_alive() else "Spark has ended"
