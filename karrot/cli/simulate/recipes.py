"""Reads the recipes of one command: ``--recipe step:max-lag=100000,min-tasks=0``."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import click

_NAMES = ("target-tracking", "step", "from-zero")
_MEASURES = ("max_lag_seconds", "target_lag_per_task", "max_lag")
_OWN = (
    *_MEASURES,
    "wake_up_lag",
    "min_tasks",
    "max_tasks",
    "scale_out_cooldown",
    "scale_in_cooldown",
    "high_resolution",
)


class Recipe(NamedTuple):
    """A recipe as it was typed, its name, and the options that are its own."""

    text: str
    name: str
    own: Mapping[str, str]


def read_recipes(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[Recipe, ...]:
    """Read the texts; what their options stand for, the command's own options know."""
    return tuple(map(_read, given))


def _read(text: str) -> Recipe:
    name, _, rest = text.partition(":")
    if name not in _NAMES:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(map(repr, _NAMES))}.")
    own = {}
    for each in filter(None, rest.split(",")):
        option, _, value = each.partition("=")
        if (attribute := option.strip().replace("-", "_")) not in _OWN:
            known = ", ".join(other.replace("_", "-") for other in _OWN)
            raise click.BadParameter(f"{option!r} is no option of a recipe: {known}.")
        own[attribute] = value or "true"
    return Recipe(text, name, own)


def each_recipe(
    command: click.Command, recipes: Iterable[Recipe], shared: Mapping[str, Any]
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Each recipe's text and what it was given: its own options before those that all of them share.

    A recipe with a measure of its own (``max-lag``) has no other.
    """
    parameters = {each.name: each for each in command.params}
    for text, name, own in recipes:
        given = dict(shared) | {"recipe": name}
        if any(measure in own for measure in _MEASURES):
            given |= dict.fromkeys(_MEASURES)
        yield text, given | {each: parameters[each].type.convert(own[each], parameters[each], None) for each in own}
