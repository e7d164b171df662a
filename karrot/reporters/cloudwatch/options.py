"""Parse the settings of the ``cloudwatch`` reporter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from karrot.reporters.cloudwatch.datum import STANDARD_RESOLUTION
from karrot.settings import types
from karrot.settings.types import ValueKind

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)


class GroupMetricName(StrEnum):
    """The metrics of a consumer group, by the names CloudWatch shows."""

    LAG = "Lag"
    SCALABLE_LAG = "ScalableLag"
    MAX_LAG = "MaxLag"
    LAG_SECONDS = "LagSeconds"
    STATUS = "Status"


class Layout(StrEnum):
    """How a group becomes a metric: by dimensions or, as in the first Karrot, by the metric's name."""

    DIMENSIONS = "dimensions"
    LEGACY = "legacy"


def _some_of(words: type[E]) -> ValueKind[tuple[E, ...]]:
    texts = types.some_of(*words)
    return ValueKind(lambda text: tuple(map(words, texts.read(text))), texts.allowed)


_METRICS = _some_of(GroupMetricName)
_LAYOUTS = _some_of(Layout)
_INTERVAL = types.duration(1, 3600)
_TTL = types.duration(1, 14 * 86400)  # CloudWatch refuses what is older
_MAX_GROUPS = types.whole(1, 1_000_000)
_RESOLUTION = types.seconds_of("1", "60")
_COMPAT = types.one_of("2019")
_TRIED = 512
_FIRST_KARROT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Options:
    """The reporter's settings. Intervals and ages are seconds.

    ``default_region`` is where to publish unless the environment says so. ``include`` is asked first, then
    ``exclude``: each matches anywhere in the name of a group.
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
    def read(cls, settings: Mapping[str, str]) -> "Options":
        """The options that texts stand for; an empty text, or none, leaves the default.

        A value lives two intervals at least: else what is observed just after a flush might not live to the next.
        Raises `ValueError` with a sentence that names the setting.
        """
        texts = _Texts(settings)
        default = cls()
        interval_s = texts.value("interval", _INTERVAL, default.interval_s)
        return cls(
            namespace=texts.value("namespace", types.namespace, default.namespace),
            interval_s=interval_s,
            metrics=texts.value("metrics", _METRICS, default.metrics),
            layouts=texts.value("layout", _LAYOUTS, default.layouts),
            max_groups=texts.value("max_groups", _MAX_GROUPS, default.max_groups),
            include=texts.value("include", types.pattern, None),
            exclude=texts.value("exclude", types.pattern, None),
            ttl_s=max(2 * interval_s, texts.value("ttl", _TTL, default.ttl_s)),
            min_complete=texts.value("min_complete", types.share, default.min_complete),
            resolution=texts.value("resolution", _RESOLUTION, default.resolution),
            iam_role=texts.value("iam_role", types.role, None),
            default_region=_FIRST_KARROT_REGION if texts.value("compat", _COMPAT, None) else None,
        )

    def wants(self, consumer: str) -> bool:
        """Whether a group's name is one that is sent.

        An expression is tried on as much of a name as labels show: whatever may post chooses names, and their length.
        """
        tried = consumer[:_TRIED]
        if self.include is not None and self.include.search(tried) is None:
            return False
        return self.exclude is None or self.exclude.search(tried) is None


class _Texts:
    """The settings that are not blank."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._texts = {name: text.strip() for name, text in settings.items() if text.strip()}

    def value(self, name: str, kind: ValueKind[T], default: D) -> T | D:
        text = self._texts.get(name)
        return default if text is None else types.checked(kind, name, text)
