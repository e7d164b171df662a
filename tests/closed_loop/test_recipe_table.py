"""The table of recipes and situations in docs/cloudwatch.md is what happens in the closed loop."""

from itertools import cycle

import pytest

from support.autoscaling.closed_loop import LoopCloudWatch
from support.autoscaling.recipe_table import RECIPES, SITUATIONS, documented, outcome, row

_HOW_TO_WRITE = "PYTHONPATH=tests python -m support.autoscaling.recipe_table writes it"


@pytest.mark.parametrize(("situation", "recipe"), list(zip(SITUATIONS, cycle(RECIPES), strict=False)))
def test_a_cell_of_every_row_and_every_column_is_what_the_closed_loop_does(
    situation: str, recipe: str, aws: LoopCloudWatch
) -> None:
    (cells,) = [cells for name, *cells in map(_split, documented()) if name == situation]
    assert outcome(RECIPES[recipe], SITUATIONS[situation], aws) == cells[list(RECIPES).index(recipe)], _HOW_TO_WRITE


@pytest.mark.deep
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_cell_of_the_table_is_what_the_closed_loop_does(situation: str, aws: LoopCloudWatch) -> None:
    assert row(situation, aws) in documented(), _HOW_TO_WRITE


def test_the_table_has_no_other_rows() -> None:
    assert [name for name, *_ in map(_split, documented())] == list(SITUATIONS)


def _split(line: str) -> list[str]:
    return line.removeprefix("| ").removesuffix(" |").split(" | ")
