"""Parses sets of Burrow's rules as users type them: ``calm:intervals=20,allowed_lag=500``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from karrot.burrow.rules import DEFAULT_INTERVALS
from karrot.settings.types import ValueKind, checked, duration, share, whole


class RuleSet(NamedTuple):
    """Values of Burrow's settings for windows and evaluator, with Burrow's defaults.

    ``min_distance`` is in seconds, ``allowed_lag`` in messages. ``minimum_complete`` is a share of the ``intervals``.
    """

    name: str
    intervals: int = DEFAULT_INTERVALS
    allowed_lag: int = 0
    min_distance: int = 0
    minimum_complete: float = 0.0

    def __str__(self) -> str:
        """Return the rule set with all options, as a user could type it."""
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
    """Parse rule sets, each ``[NAME:]option=value,…``. Without ``texts``, return one rule set with Burrow's defaults.

    If a rule set has no name, its text is its name. Raises `ValueError` with a message that says what is allowed.
    """
    sets = tuple(map(_read, texts)) or (RuleSet(_BURROWS),)
    names = [each.name for each in sets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"--rules: two sets have the name {twice!r}; give each a name, as in calm:intervals=20")
    return sets


def _read(text: str) -> RuleSet:
    name, colon, rest = text.partition(":")
    if not colon:
        # An option without a value is an error and not the name of a rule set.
        is_name = text and "=" not in text and text.strip().replace("-", "_") not in _KINDS
        name, rest = (text, "") if is_name else ("", text)
    options = [_option(each.strip()) for each in rest.split(",") if each.strip()]
    given = dict(options)
    if len(given) < len(options):
        raise ValueError(f"--rules: {text!r} has one rule twice; give it once")
    return RuleSet(name.strip() or rest.strip() or _BURROWS)._replace(**given)


def _option(text: str) -> tuple[str, Any]:
    option, _, value = text.partition("=")
    # Burrow's own option names have hyphens.
    known = option.strip().replace("-", "_")
    if known not in _KINDS:
        raise ValueError(f"--rules: {option!r} is not a rule of Burrow; the rules are {', '.join(_KINDS)}")
    return known, checked(_KINDS[known], f"--rules {known}", value.strip())
