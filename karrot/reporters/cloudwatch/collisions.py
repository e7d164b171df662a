"""Groups of one name in two clusters, which the legacy layout cannot tell apart."""

from collections import OrderedDict

__all__ = ["BOUND", "LegacyNames"]

BOUND = 100_000
"""Names that are remembered; of more, those heard longest ago are forgotten."""


class LegacyNames:
    """Which cluster each metric of the legacy layout was last sent for. Not for several threads."""

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._clusters: OrderedDict[str, str] = OrderedDict()

    def taken_over(self, name: str, cluster: str) -> bool:
        """Note that a metric is sent for a cluster; true if it was another's before: its value is lost."""
        before = self._clusters.get(name)
        self._clusters[name] = cluster
        self._clusters.move_to_end(name)
        if len(self._clusters) > self._bound:
            self._clusters.popitem(last=False)
        return before is not None and before != cluster
