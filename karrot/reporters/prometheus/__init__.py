"""The ``prometheus`` reporter: exposes the newest state of each group as metrics, read from the log at each scrape.

Every worker gives the same answer, because the reporter keeps no state.
"""

from collections.abc import Callable
from dataclasses import dataclass

from karrot.eventlog.base import EventLog
from karrot.reporters.base import Context
from karrot.reporters.prometheus.exposition import LogCollector, Options, render

__all__ = ["LogCollector", "Options", "PrometheusReporter", "build", "render"]


@dataclass(frozen=True, slots=True)
class PrometheusReporter:
    """A pull reporter: see `karrot.reporters.base.PullReporter`."""

    options: Options
    count: Callable[..., None]

    def collector(self, log: EventLog) -> LogCollector:
        return LogCollector(log, self.options, self.count)


def build(context: Context) -> PrometheusReporter:
    """Build the reporter."""
    return PrometheusReporter(context.options, context.count)
