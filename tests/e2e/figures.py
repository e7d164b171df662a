"""What tests measure by the way; pytest shows it at its end."""

from collections.abc import Callable, Iterable, Iterator


class Figures:
    """Seconds by name, kept as properties of the test's report."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def add(self, what: str, seconds: float) -> None:
        self._record(what, seconds)


def told(properties: Iterable[tuple[str, object]]) -> Iterator[str]:
    """A line for each figure among a report's properties."""
    for what, value in properties:
        if isinstance(value, float):
            yield f"{what}: {value:.3f} s"
