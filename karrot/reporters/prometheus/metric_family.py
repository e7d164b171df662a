"""Defines a metric family with its labels and samples. Samples are lines of text, or objects of Prometheus' client."""

from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256

from prometheus_client.core import Sample

from karrot.telemetry import Metric

MAX_LENGTH = 512
"""The maximum length of a label value in characters."""

_DIGEST = 8


def label_value(name: str) -> str:
    """The name as a label value. NUL becomes U+FFFD. A long name is cut, and ends in ``~`` and part of its SHA-256."""
    clean = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(clean) <= MAX_LENGTH:
        return clean
    return f"{clean[: MAX_LENGTH - _DIGEST - 1]}~{opaque(name)}"


def opaque(name: str) -> str:
    """Eight hex digits for the name of a machine of ours: ``/metrics`` may need no credentials."""
    return sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGEST]


def escaped(value: str) -> str:
    """A label value escaped for both text formats, without the quotes."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class ListedFamily:
    """A family with few samples, kept in a list."""

    def __init__(self, metric: Metric, samples: Iterable[Sample]) -> None:
        self.metric = metric
        self._samples = tuple(samples)

    def samples(self) -> Iterator[Sample]:
        """The samples."""
        return iter(self._samples)

    def pieces(self) -> Iterator[str]:
        """One piece per sample."""
        return map(_line, self._samples)

    def only(self, names: Collection[str]) -> "ListedFamily | None":
        """The samples of these names."""
        chosen = [each for each in self._samples if each.name in names]
        return ListedFamily(self.metric, chosen) if chosen else None


def sample(metric: Metric, values: Iterable[str], value: float) -> Sample:
    """A sample with the labels of its metric."""
    return Sample(metric.name, dict(zip(metric.labels, values, strict=True)), value)


def header(metric: Metric, *, openmetrics: bool) -> str:
    """The HELP and TYPE lines. In OpenMetrics, the family has a name of its own. The samples keep their name."""
    name = family_name(metric) if openmetrics else metric.name
    kind = metric.kind if openmetrics or metric.kind != "info" else "gauge"
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n"


def family_name(metric: Metric) -> str:
    """The name of the family, without the ``_total`` of a counter and the ``_info`` of an info."""
    suffixes = {"counter": "_total", "info": "_info"}
    return metric.name.removesuffix(suffixes.get(metric.kind, ""))


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{escaped(value)}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}} {sample.value}\n" if labels else f"{sample.name} {sample.value}\n"
