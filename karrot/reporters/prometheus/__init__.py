"""The ``prometheus`` reporter: exposes the newest state of each group as metrics, read from the log at each scrape.

Every worker gives the same answer, because the reporter keeps no state.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from karrot.eventlog.base import EventLog
from karrot.reporters.base import Context
from karrot.reporters.prometheus.exposition import LogCollector, Options, render

__all__ = ["LogCollector", "Options", "PrometheusReporter", "build", "render"]

_TRUE = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class PrometheusReporter:
    """A pull reporter: see `karrot.reporters.base.PullReporter`."""

    options: Options
    count: Callable[..., None]

    def collector(self, log: EventLog) -> LogCollector:
        return LogCollector(log, self.options, self.count)


def build(context: Context) -> PrometheusReporter:
    """Build the reporter.

    All settings of the reporter are optional. ``partition_metrics``, ``topic_metrics`` and ``watch`` are turned on by
    ``true``. ``exclude_consumers`` is a regular expression that matches anywhere. ``expected_clusters`` and
    ``reporters`` are comma-separated names. Without ``reporters``, every reporter in the log is shown.
    Raises `ValueError` for an invalid regular expression.
    """
    settings = context.settings
    options = Options(
        partition_metrics=_flag(settings, "partition_metrics"),
        topic_metrics=_flag(settings, "topic_metrics"),
        watch=_flag(settings, "watch"),
        exclude=_pattern(settings.get("exclude_consumers", "")),
        expected_clusters=_names(settings.get("expected_clusters", "")),
        reporters=_names(settings["reporters"]) if "reporters" in settings else None,
    )
    return PrometheusReporter(options, context.count)


def _flag(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").strip().lower() in _TRUE


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise ValueError(f"exclude_consumers is not a regular expression: {error}") from error
