"""What a streaming query noted in its checkpoint, as those see it who read of a batch there."""

from collections.abc import Callable

Read = Callable[[str], str | None]
"""The text of a file below a checkpoint, by its name; ``None`` if there is no such file."""
