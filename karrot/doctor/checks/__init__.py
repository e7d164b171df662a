"""Defines findings and the checks that make them. A finding has a level, a fault and the line that fixes the fault."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from karrot.doctor.read_burrow import BurrowSeen


class Level(StrEnum):
    """How serious a finding is.

    ``fault``: something does not work. ``warn``: something will fail, or fails sometimes. ``note``: only information.
    """

    FAULT = "fault"
    WARN = "warn"
    NOTE = "note"
    OK = "ok"

    @property
    def is_wrong(self) -> bool:
        """Whether the finding needs a fix."""
        return self in (Level.FAULT, Level.WARN)


class _NotJudged(Exception):  # noqa: N818 (it describes a result)
    """The check has no data, so it makes no finding."""


class Said(NamedTuple):
    """What a check says. ``remedy`` is the line that fixes the fault, or says where to look for the cause."""

    level: Level
    what: str
    remedy: str = ""


Look = Callable[..., Iterator[Said]]
"""Takes what was read of one program or of two, and says what is wrong there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of a check. ``where`` is the page and heading in the documentation."""

    level: Level
    check: str
    what: str
    remedy: str
    where: str


@dataclass(frozen=True, slots=True)
class Check:
    """A check for one fault. ``trap`` describes the fault, ``well`` describes the state without the fault.

    ``runbooks`` are those of the alerts on the same problem.
    """

    name: str
    trap: str
    well: str
    where: str
    look: Look
    runbooks: tuple[str, ...] = ()

    def __call__(self, *seen: Any) -> list[Finding]:
        """Run the check. It returns at least one finding, or none if it has no data."""
        try:
            said = list(self.look(*seen)) or [Said(Level.OK, self.well)]
        except _NotJudged:
            return []
        return [Finding(each.level, self.name, each.what, each.remedy, self.where) for each in said]


_MODULES = {"notifier": "to_karrot", "consumer": "consumers", "cluster": "clusters", "storage": "storages"}


def check(*runbooks: str, well: str, where: str, each: str = "") -> Callable[[Look], Check]:
    """Make a check from a function. The check gets the function's name, and its docstring's first line as ``trap``.

    With ``each``, a kind of Burrow's modules, the function gets one section, its module, and all of Burrow.
    """

    def make(look: Look) -> Check:
        def look_at_modules(seen: BurrowSeen) -> Iterator[Said]:
            only_if(modules := getattr(seen, _MODULES[each]))
            for name, module in modules.items():
                yield from look(f"[{each}.{name}]", module, seen)

        trap = (look.__doc__ or "").partition("\n")[0]
        name = look.__name__.replace("_", "-")
        return Check(name, trap, well, where, look_at_modules if each else look, runbooks)

    return make


def only_if(is_there: object) -> None:
    """End a check without any finding if the data that it needs is missing."""
    if not is_there:
        raise _NotJudged


fault, warn, note = (partial(Said, level) for level in (Level.FAULT, Level.WARN, Level.NOTE))
