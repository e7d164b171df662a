"""Parses sets of Burrow's rules as users type them: ``calm:intervals=20,allowed_lag=500``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from karrot.burrow.rules import DEFAULT_INTERVALS
from karrot.settings.types import ValueKind, checked, duration, share, whole


class RuleSet(NamedTuple):
    """What Burrow can be told of its windows and its evaluator, with Burrow's defaults.

    ``min_distance`` is seconds, ``allowed_lag`` messages, ``minimum_complete`` a share of the ``intervals``.
    """

    name: str
    intervals: int = DEFAULT_INTERVALS
    allowed_lag: int = 0
    min_distance: int = 0
    minimum_complete: float = 0.0

    def __str__(self) -> str:
        """All of it, as it could be typed."""
        return (
            f"intervals={self.intervals},allowed_lag={self.allowed_lag},"
            f"min_distance={self.min_distance},minimum_complete={self.minimum_complete:g}"
        )


_KINDS: Final[Mapping[str, ValueKind[Any]]] = {
    "intervals": whole(1, 10_000),
    "allowed_lag": whole(0, 2**62),
    "min_distance": duration(0, 86_400),
    "minimum_complete": share,
}
_BURROWS: Final = "burrow"


def read_rule_sets(texts: Sequence[str]) -> tuple[RuleSet, ...]:
    """The sets in the order they were given, each ``[NAME:]option=value,…``; Burrow's own defaults if there are none.

    A set without a name is called what it says. Raises `ValueError` with a sentence that says what is allowed.
    """
    sets = tuple(map(_read, texts)) or (RuleSet(_BURROWS),)
    names = [each.name for each in sets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"--rules: two sets are called {twice!r}; give them names, as in calm:intervals=20")
    return sets


def _read(text: str) -> RuleSet:
    name, colon, rest = text.partition(":")
    if not colon:
        # A rule without a value is a slip, not a set that is called so.
        is_name = text and "=" not in text and text.strip().replace("-", "_") not in _KINDS
        name, rest = (text, "") if is_name else ("", text)
    options = [_option(each.strip()) for each in rest.split(",") if each.strip()]
    given = dict(options)
    if len(given) < len(options):
        raise ValueError(f"--rules: {text!r} says one rule twice")
    return RuleSet(name.strip() or rest.strip() or _BURROWS)._replace(**given)


def _option(text: str) -> tuple[str, Any]:
    option, _, value = text.partition("=")
    # Burrow's own file has hyphens.
    known = option.strip().replace("-", "_")
    if known not in _KINDS:
        raise ValueError(f"--rules: {option!r} is no rule of Burrow's; there are {', '.join(_KINDS)}")
    return known, checked(_KINDS[known], f"--rules {known}", value.strip())
