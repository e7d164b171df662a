"""The table of recipes and situations in docs/cloudwatch.md is what happens in the closed loop."""

import pytest

from support.autoscaling.closed_loop import LoopCloudWatch
from support.autoscaling.recipe_table import SITUATIONS, documented, row


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_cell_of_the_table_is_what_the_closed_loop_does(situation: str, aws: LoopCloudWatch) -> None:
    assert row(situation, aws) in documented(), "PYTHONPATH=tests python -m support.autoscaling.recipe_table writes it"


def test_the_table_has_no_other_rows() -> None:
    assert len(documented()) == len(SITUATIONS)
