"""Pure ``LagEvent -> Signals``: what one verdict says beyond its lag."""

from typing import NamedTuple

__all__ = ["Signals"]


class Signals(NamedTuple):
    """Numbers derived from one event. ``None`` is "not known", never zero."""

    scalable_lag: int | None = None
    produce_rate: float | None = None
    consume_rate: float | None = None
    lag_seconds: float | None = None
    lag_seconds_extrapolated: bool = False
    catch_up_seconds: float | None = None
