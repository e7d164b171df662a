"""Lists the scaling recipes of the closed loop, with the settings of Karrot and Burrow that each one needs."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import yaml

from support.karrot_command import run_karrot

CLUSTER, GROUP = "main", "orders"
TOPIC_ARN = "arn:aws:sns:eu-west-1:123456789012:oncall"
_COMMON = ("--cluster", CLUSTER, "--group", GROUP, "--sns-topic-arn", TOPIC_ARN)


@dataclass(frozen=True)
class Recipe:
    """A recipe with its limits of tasks; if ``fast``, Burrow and Karrot report every 10 seconds instead of 30."""

    name: str
    arguments: tuple[str, ...]
    fast: bool = False
    least: int = 1
    most: int = 8

    def __str__(self) -> str:
        return self.name

    @cached_property
    def text(self) -> str:
        """Return the template that the command prints."""
        asked = ["render", "ecs-autoscaling", *self.arguments, "--max-tasks", str(self.most), *_COMMON]
        outcome = run_karrot(*asked)
        assert outcome.exit_code == 0, outcome.output
        return outcome.output

    @cached_property
    def template(self) -> dict[str, Any]:
        """Return the template, parsed."""
        template: dict[str, Any] = yaml.safe_load(self.text)
        return template

    @property
    def karrot(self) -> dict[str, str]:
        """Return the settings of the reporter that the recipe's comments require."""
        return {"metrics": self._metrics} | ({"resolution": "1", "interval": "10s"} if self.fast else {})

    @property
    def measured(self) -> str:
        """Return the first metric of the group that the recipe reads."""
        return self._metrics.split(",")[0]

    @cached_property
    def _metrics(self) -> str:
        (metrics,) = re.findall(r"KARROT_CLOUDWATCH_METRICS +must contain ([\w,]+)", self.text)
        return str(metrics)

    @property
    def reports_every_s(self) -> int:
        """Return Burrow's interval in seconds."""
        return 10 if self.fast else 30

    def with_options(self, *options: str) -> "Recipe":
        """Return the same recipe with further options."""
        return replace(self, arguments=(*self.arguments, *options))

    def up_to(self, most: int) -> "Recipe":
        """Return the same recipe with another maximum."""
        return replace(self, most=most)


def _recipes(kind: str, target: tuple[str, ...]) -> dict[str, Recipe]:
    def recipe(name: str, *arguments: str, fast: bool = False, least: int = 1) -> tuple[str, Recipe]:
        return name, Recipe(f"{name}-{kind}", (*target, "--recipe", *arguments), fast, least)

    return dict(
        [
            recipe("tracking-seconds", "target-tracking", "--max-lag-seconds", "60"),
            recipe("tracking-backlog", "target-tracking", "--target-lag-per-task", "3000"),
            recipe("step-messages", "step", "--max-lag", "6000"),
            recipe("step-seconds", "step", "--max-lag-seconds", "60"),
            recipe("step-fast", "step", "--max-lag", "6000", "--high-resolution", fast=True),
            recipe("from-zero-seconds", "from-zero", "--max-lag-seconds", "60", least=0),
            recipe("from-zero-backlog", "from-zero", "--target-lag-per-task", "3000", least=0),
        ]
    )


ECS = _recipes("ecs", ("--target", "ecs", "--ecs-cluster", "prod", "--service", "orders"))
ASG = _recipes("asg", ("--target", "asg", "--asg-name", "orders"))
