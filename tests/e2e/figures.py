"""Figures that tests measure in passing; pytest shows them at the end of a run."""

from collections.abc import Callable, Iterable, Iterator


class Figures:
    """Seconds by name, kept as properties of the test's report."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def add(self, what: str, seconds: float) -> None:
        self._record(what, seconds)


def told(properties: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Yield a line for each figure among a report's properties."""
    for what, value in properties:
        if isinstance(value, float):
            yield f"{what}: {value:.3f} s"
