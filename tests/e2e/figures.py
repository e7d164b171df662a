"""What tests measure by the way; pytest shows it at its end."""

__all__ = ["Figures"]


class Figures:
    """Seconds by name, in the order in which they were measured."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, what: str, seconds: float) -> None:
        self.lines.append(f"{what}: {seconds:.3f} s")
