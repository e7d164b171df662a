"""Defines findings and the checks that make them. A finding has a level, a fault and the line that fixes the fault."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from karrot.doctor.read_burrow import BurrowSeen


class Level(StrEnum):
    """How serious a finding is.

    ``fault``: something does not work. ``warn``: something fails sometimes, or will fail. ``note``: only information.
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
    """Raised if a check lacks data and so makes no finding."""


class Problem(NamedTuple):
    """A problem that a check found. ``remedy`` is the line that fixes the fault, or says where to find the cause."""

    level: Level
    what: str
    remedy: str = ""


CheckFunction = Callable[..., Iterator[Problem]]
"""The function of a check, which takes the data of one or two programs, and yields the problems."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of a check. ``where`` is the page and heading of the documentation about the problem."""

    level: Level
    check: str
    what: str
    remedy: str
    where: str


@dataclass(frozen=True, slots=True)
class Check:
    """A check for one fault. ``problem`` describes the fault, ``success`` describes the state without the fault.

    ``runbooks`` are the runbooks of the alerts on the same problem.
    """

    name: str
    problem: str
    success: str
    where: str
    function: CheckFunction
    runbooks: tuple[str, ...] = ()

    def __call__(self, *seen: Any) -> list[Finding]:
        """Run the check. Returns at least one finding, or an empty list if the check lacks data."""
        try:
            problems = list(self.function(*seen)) or [Problem(Level.OK, self.success)]
        except _NotJudged:
            return []
        return [Finding(each.level, self.name, each.what, each.remedy, self.where) for each in problems]


_MODULES = {"notifier": "to_karrot", "consumer": "consumers", "cluster": "clusters", "storage": "storages"}


def check(*runbooks: str, success: str, where: str, each: str = "") -> Callable[[CheckFunction], Check]:
    """Make a check from a function. The check's name is the function's name; ``problem`` is the docstring's first line.

    ``each`` is a kind of Burrow's modules. The function gets each module with its section and with `BurrowSeen`.
    """

    def make(function: CheckFunction) -> Check:
        def check_modules(seen: BurrowSeen) -> Iterator[Problem]:
            only_if(modules := getattr(seen, _MODULES[each]))
            for name, module in modules.items():
                yield from function(f"[{each}.{name}]", module, seen)

        problem = (function.__doc__ or "").partition("\n")[0]
        name = function.__name__.replace("_", "-")
        return Check(name, problem, success, where, check_modules if each else function, runbooks)

    return make


def only_if(is_there: object) -> None:
    """End the check without a finding if ``is_there`` is false: the check's data is missing."""
    if not is_there:
        raise _NotJudged


fault, warn, note = (partial(Problem, level) for level in (Level.FAULT, Level.WARN, Level.NOTE))


def not_due(cluster: str, age: float) -> Problem:
    return note(
        f"the Burrow of {cluster} started {age:.0f} s ago, and its first events are not due yet",
        "run karrot doctor again after a minute and two of Burrow's intervals",
    )
