"""Writes the answer of ``/metrics`` in the format that the scraper accepts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import structlog
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from karrot import telemetry
from karrot.reporters.prometheus.collector import LogCollector
from karrot.reporters.prometheus.group_metrics import Family
from karrot.reporters.prometheus.metric_family import header

_OPENMETRICS = "application/openmetrics-text"
_EOF = b"# EOF\n"

_log = structlog.get_logger(__name__)


def _uncounted(_name: str, _by: float = 1, **_labels: str) -> None:
    """Count nothing. This is the default for ``count``."""


def render(
    collectors: Mapping[str, Collector],
    accept: str = "",
    names: Sequence[str] = (),
    *,
    count: Callable[..., None] = _uncounted,
) -> tuple[str, Iterator[bytes]]:
    """The content type for an ``Accept`` header, and the exposition in pieces. Each piece is made when it is read.

    ``collectors`` are by the names of their reporters. ``names`` limits the answer to samples with these names
    (``name[]``). A third-party collector that fails is left out, logged, and counted with ``count``.
    """
    content_type, encode = _chosen(accept)
    openmetrics = content_type.startswith(_OPENMETRICS)
    return content_type, _exposition(collectors, frozenset(names), encode, count, openmetrics=openmetrics)


def _chosen(accept: str) -> tuple[str, Callable[[Collector], bytes]]:
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # raised by the client library for a version that is not a number, such as "x"
        encode, content_type = choose_encoder("")
    return content_type, encode


def _exposition(
    collectors: Mapping[str, Collector],
    names: Collection[str],
    encode: Callable[[Collector], bytes],
    count: Callable[..., None],
    *,
    openmetrics: bool,
) -> Iterator[bytes]:
    for name, collector in collectors.items():
        if isinstance(collector, LogCollector):
            yield from _written(collector.families(), names, openmetrics=openmetrics)
        else:
            yield _encoded(name, collector, names, encode, count)
    if openmetrics:
        yield _EOF


def _written(families: Iterable[Family], names: Collection[str], *, openmetrics: bool) -> Iterator[bytes]:
    for family in families:
        chosen = family.only(names) if names else family
        if chosen is not None:
            yield header(chosen.metric, openmetrics=openmetrics).encode()
            # Intake refuses lone surrogates. But if one gets here, the scrape must still succeed.
            yield from (piece.encode("utf-8", "replace") for piece in chosen.pieces())


def _encoded(
    name: str,
    collector: Collector,
    names: Collection[str],
    encode: Callable[[Collector], bytes],
    count: Callable[..., None],
) -> bytes:
    try:
        return encode(_Chosen(collector, names) if names else collector).removesuffix(_EOF)
    except Exception:  # noqa: BLE001 - third-party code: the other metrics are valid after any error
        _log.exception("collector_failed", reporter=name)
        count(telemetry.REPORTER_FAILURES.name, reporter=name, reason="collect")
        return b""


class _Chosen(NamedTuple):
    """A collector limited to samples with certain names."""

    collector: Collector
    names: Collection[str]

    def collect(self) -> Iterator[ClientMetric]:
        for metric in self.collector.collect():
            samples = [each for each in metric.samples if each.name in self.names]
            if samples:
                chosen = ClientMetric(metric.name, metric.documentation, metric.type, metric.unit)
                chosen.samples = samples
                yield chosen
