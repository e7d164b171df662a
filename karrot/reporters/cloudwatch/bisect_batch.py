"""Which data of a rejected batch are the bad ones, in few calls.

CloudWatch takes all data of a call or none. A datum is refused only when CloudWatch rejected it alone, or named it in a
call of nothing but named ones: answers that count members otherwise than we do cost calls, never a good datum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from karrot.reporters.cloudwatch.datum import Datum
from karrot.reporters.cloudwatch.faults import Rejected, TooLarge

__all__ = ["Search"]


class _Place(Enum):
    WHOLE = auto()
    LEFT = auto()  # half of a rejected part
    RIGHT = auto()
    NAMED = auto()  # by the answer to a rejected part


@dataclass(frozen=True, slots=True)
class _Part:
    place: _Place
    data: list[Datum]


class Search:
    """The parts of a batch to send, one after the other, until each datum is delivered or refused.

    Halving finds one among n in at most two calls per doubling: 20 among 1,000. With names it takes two.
    """

    def __init__(self, batch: Sequence[Datum]) -> None:
        self._parts = [_Part(_Place.WHOLE, list(batch))]  # the next one last
        self._left_was_good = False
        self._names_are_true = True

    def part(self) -> list[Datum]:
        """What to send next; nothing when all is settled. Then `delivered` or `rejected` has to be said."""
        if self._left_was_good and self._next_is(_Place.RIGHT) and len(self._parts[-1].data) > 1:
            self._halve(_Place.LEFT, _Place.RIGHT)  # it holds what made the two together bad: no call has to tell
        self._left_was_good = False
        return self._parts[-1].data if self._parts else []

    def delivered(self) -> None:
        """The part arrived."""
        self._left_was_good = self._next_is(_Place.LEFT)
        if self._next_is(_Place.NAMED):
            self._names_are_true = False
        self._parts.pop()

    def rejected(self, verdict: Rejected | TooLarge) -> bool:
        """The part was not taken: whether all of it is to be refused. If not, it will come again in smaller parts."""
        data = self._parts[-1].data
        named = self._named(verdict, len(data))
        if len(data) == 1 or len(named) == len(data):
            self._parts.pop()
            return True
        if named:
            self._set_apart(named)
        elif isinstance(verdict, Rejected):
            self._halve(_Place.LEFT, _Place.RIGHT)
        else:
            self._halve(_Place.WHOLE, _Place.WHOLE)
        return False

    def unsettled(self) -> list[Datum]:
        """What is neither delivered nor refused, in order."""
        return [datum for part in reversed(self._parts) for datum in part.data]

    def _next_is(self, place: _Place) -> bool:
        return bool(self._parts) and self._parts[-1].place is place

    def _named(self, verdict: Rejected | TooLarge, length: int) -> set[int]:
        if isinstance(verdict, TooLarge) or not self._names_are_true:
            return set()
        return {position for position in verdict.members if 0 <= position < length}

    def _set_apart(self, named: set[int]) -> None:
        data = self._parts.pop().data
        rest = [datum for position, datum in enumerate(data) if position not in named]
        self._parts += [_Part(_Place.WHOLE, rest), _Part(_Place.NAMED, [data[position] for position in sorted(named)])]

    def _halve(self, left: _Place, right: _Place) -> None:
        data = self._parts.pop().data
        middle = (len(data) + 1) // 2
        self._parts += [_Part(right, data[middle:]), _Part(left, data[:middle])]
