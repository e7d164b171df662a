"""Parses the settings of the ``cloudwatch`` reporter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from karrot.reporters.cloudwatch.datum_limits_and_batches import STANDARD_RESOLUTION
from karrot.settings import compat
from karrot.settings.options import Settings, settings_of_reporter

_TRIED = 512


class GroupMetricName(StrEnum):
    """The metrics of a consumer group, under the names that CloudWatch shows."""

    LAG = "Lag"
    SCALABLE_LAG = "ScalableLag"
    MAX_LAG = "MaxLag"
    LAG_SECONDS = "LagSeconds"
    SCALABLE_LAG_SECONDS = "ScalableLagSeconds"
    STATUS = "Status"


class Layout(StrEnum):
    """How a metric identifies its group: by dimensions, or by the metric's name as in the first Karrot."""

    DIMENSIONS = "dimensions"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings. Intervals and ages are seconds.

    ``default_region`` is the Region if the environment sets none. A group must match ``include`` and must not match
    ``exclude``. Both expressions match anywhere in the group's name.
    """

    namespace: str = "Karrot"
    interval_s: int = 30
    metrics: tuple[GroupMetricName, ...] = (GroupMetricName.LAG,)
    layouts: tuple[Layout, ...] = (Layout.DIMENSIONS,)
    max_groups: int = 1000
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    ttl_s: int = 180
    min_complete: float = 0.0
    resolution: int = STANDARD_RESOLUTION
    iam_role: str | None = None
    default_region: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The options. A value lives for two intervals at least, so that it does not expire before a send."""
        return cls(
            namespace=settings.cloudwatch_namespace,
            interval_s=settings.cloudwatch_interval,
            metrics=tuple(map(GroupMetricName, settings.cloudwatch_metrics)),
            layouts=tuple(map(Layout, settings.cloudwatch_layout)),
            max_groups=settings.cloudwatch_max_groups,
            include=settings.cloudwatch_include,
            exclude=settings.cloudwatch_exclude,
            ttl_s=max(2 * settings.cloudwatch_interval, settings.cloudwatch_ttl),
            min_complete=settings.cloudwatch_min_complete,
            resolution=settings.cloudwatch_resolution,
            iam_role=settings.iam_role,
            default_region=compat.REGION if settings.compat else None,
        )

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> Self:
        return cls.of(settings_of_reporter("cloudwatch", texts, shared=("iam_role", "compat")))

    def wants(self, consumer: str) -> bool:
        """Whether a group is sent. Clients choose the names, so only the first 512 characters are matched."""
        tried = consumer[:_TRIED]
        if self.include is not None and self.include.search(tried) is None:
            return False
        return self.exclude is None or self.exclude.search(tried) is None
