"""The tables of recipes and situations in docs/cloudwatch.md are what happens in the closed loop."""

from itertools import cycle

import pytest

from support.autoscaling.closed_loop import LoopCloudWatch
from support.autoscaling.recipe_table import RECIPES, SITUATIONS, cell, documented, row

_HOW_TO_WRITE = "PYTHONPATH=tests python -m support.autoscaling.recipe_table writes it"
_COLUMNS = [(table, recipe) for table, recipes in RECIPES.items() for recipe in recipes]


@pytest.mark.parametrize(("situation", "column"), list(zip(SITUATIONS, cycle(_COLUMNS), strict=False)))
def test_a_cell_of_every_row_and_every_column_is_what_the_closed_loop_does(
    situation: str, column: tuple[str, str], aws: LoopCloudWatch
) -> None:
    table, recipe = column
    (cells,) = [cells for name, *cells in map(_split, documented(table)) if name == situation]
    documented_cell = cells[list(RECIPES[table]).index(recipe)]
    assert cell(RECIPES[table][recipe], situation, aws) == documented_cell, _HOW_TO_WRITE


@pytest.mark.deep
@pytest.mark.parametrize("table", RECIPES)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_cell_of_the_tables_is_what_the_closed_loop_does(situation: str, table: str, aws: LoopCloudWatch) -> None:
    assert row(table, situation, aws) in documented(table), _HOW_TO_WRITE


@pytest.mark.parametrize("table", RECIPES)
def test_the_tables_have_no_other_rows(table: str) -> None:
    assert [name for name, *_ in map(_split, documented(table))] == list(SITUATIONS)


def _split(line: str) -> list[str]:
    return line.removeprefix("| ").removesuffix(" |").split(" | ")
