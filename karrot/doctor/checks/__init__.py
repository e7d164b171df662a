"""Defines findings (a level, what is wrong, and the line that fixes it) and the checks that make them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, ParamSpec

from karrot.known_problems import KnownProblem

P = ParamSpec("P")


class Level(StrEnum):
    """How bad it is. ``fault``: something does not work. ``warn``: it will not, or not always. ``note``: to know."""

    FAULT = "fault"
    WARN = "warn"
    NOTE = "note"
    OK = "ok"

    @property
    def is_wrong(self) -> bool:
        """Whether there is something to fix."""
        return self in (Level.FAULT, Level.WARN)


class _NotJudged(Exception):  # noqa: N818 (says what became of a check)
    """There is nothing to judge by."""


class Said(NamedTuple):
    """What a check says about one thing: ``remedy`` is the line that fixes it, or where to look."""

    level: Level
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. ``where`` is the page and heading of the documentation."""

    level: Level
    check: str
    what: str
    remedy: str
    where: str


@dataclass(frozen=True, slots=True)
class Check(Generic[P]):
    """A check for one trap. ``trap`` says what may be wrong, ``well`` what is true if it is not.

    ``problems`` are those that it finds and that the pages show or an alert fires on.
    """

    name: str
    trap: str
    well: str
    where: str
    look: Callable[P, Iterator[Said]]
    problems: tuple[KnownProblem, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[Finding]:
        """Run the check: at least one finding, unless it has nothing to judge by."""
        try:
            said = list(self.look(*args, **kwargs)) or [Said(Level.OK, self.well)]
        except _NotJudged:
            return []
        return [Finding(each.level, self.name, each.what, each.remedy, self.where) for each in said]


def check(*problems: KnownProblem, well: str, where: str) -> Callable[[Callable[P, Iterator[Said]]], Check[P]]:
    """Make a check of a function: its name is the check's, the first line of its docstring the trap."""

    def make(look: Callable[P, Iterator[Said]]) -> Check[P]:
        trap = (look.__doc__ or "").partition("\n")[0]
        return Check(look.__name__.replace("_", "-"), trap, well, where, look, problems)

    return make


def only_if(is_there: object) -> None:
    """End a check without a finding, good or bad, if what it judges by is missing."""
    if not is_there:
        raise _NotJudged


def fault(what: str, remedy: str) -> Said:
    """Something does not work."""
    return Said(Level.FAULT, what, remedy)


def warn(what: str, remedy: str) -> Said:
    """Something will not work, or does not always."""
    return Said(Level.WARN, what, remedy)


def note(what: str, remedy: str = "") -> Said:
    """Something to know."""
    return Said(Level.NOTE, what, remedy)
