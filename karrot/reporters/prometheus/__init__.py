"""The ``prometheus`` reporter: reads each group's newest state from the log at each scrape, and exposes it as metrics.

Every worker gives the same answer, because the reporter keeps no state.
"""

from collections.abc import Callable
from dataclasses import dataclass

from karrot.eventlog.event_log import EventLog
from karrot.reporters.base import Context
from karrot.reporters.prometheus.exposition import LogCollector, Options, render

__all__ = ["LogCollector", "Options", "PrometheusReporter", "build", "render"]


@dataclass(frozen=True, slots=True)
class PrometheusReporter:
    """The `karrot.reporters.base.PullReporter` for Prometheus."""

    options: Options
    count: Callable[..., None]

    def collector(self, log: EventLog) -> LogCollector:
        return LogCollector(log, self.options, self.count)


def build(context: Context) -> PrometheusReporter:
    return PrometheusReporter(context.options, context.count)
