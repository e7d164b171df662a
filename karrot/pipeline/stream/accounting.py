"""Rows in are rows out: a batch of which that is not so has failed, and is repeated."""

from typing import Protocol, TypeVar


class UnevenError(RuntimeError):
    """Rows in are not rows out: the tables do not hold what was read. Another run repeats the batch."""


class Even(Protocol):
    """The summary of a batch."""

    @property
    def is_even(self) -> bool:
        """Whether all that was read is accounted for."""


T = TypeVar("T", bound=Even)


def even(batch_id: str, summary: T) -> T:
    """The summary of a batch. Raises `UnevenError`."""
    if not summary.is_even:
        raise UnevenError(f"batch {batch_id}: {summary}")
    return summary
