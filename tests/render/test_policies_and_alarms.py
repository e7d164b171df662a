"""`karrot simulate` runs the same stack that the rendered template deploys."""

import pytest

from karrot.autoscaling.metric_math_evaluator import Gaps
from karrot.autoscaling.policies import ScaleIn
from karrot.render.policies_and_alarms import stack_of
from karrot.render.scaling_recipe import Scaling
from support.autoscaling.scaling_recipes import RECIPES, make_scaling, render_cloudformation
from support.autoscaling.template_to_stack import parse_stack

COOLDOWNS = {
    "ecs-cooldowns": make_scaling(recipe="step", max_lag=10_000, scale_out_cooldown=90, scale_in_cooldown=0),
    "asg-warm-up": make_scaling(
        recipe="target-tracking", max_lag_seconds=90, target="asg", asg_name="workers", scale_out_cooldown=240
    ),
}


@pytest.mark.parametrize("gaps", Gaps)
@pytest.mark.parametrize("scale_in", ScaleIn)
@pytest.mark.parametrize("asked", [*RECIPES.values(), *COOLDOWNS.values()], ids=[*RECIPES, *COOLDOWNS])
def test_the_template_describes_the_simulated_stack(asked: Scaling, scale_in: ScaleIn, gaps: Gaps) -> None:
    limits = None if asked.on_ecs else (asked.least, asked.max_tasks)
    template = parse_stack(render_cloudformation(asked), limits=limits, gaps=gaps, scale_in=scale_in)
    simulated = stack_of(asked, gaps=gaps, scale_in=scale_in)
    assert (simulated.minimum, simulated.maximum) == (template.minimum, template.maximum)
    assert simulated.policies == template.policies
    assert list(simulated.alarms.items()) == list(template.alarms.items())
    held = [stack._cooldowns._scale_out_blocks_scale_in for stack in (simulated, template)]
    assert held[0] is held[1]
