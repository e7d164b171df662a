"""Invalid options of a scaling recipe are refused with one sentence."""

from typing import Any

import pytest

from support.autoscaling.scaling_recipes import make_scaling

SECONDS = {"recipe": "target-tracking", "max_lag_seconds": 60}
MESSAGES = {"recipe": "step", "max_lag": 1000}
GROUP = {"target": "asg", "asg_name": "workers"}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        (
            {"recipe": "magic"},
            ["--recipe is 'magic': it must be one of target-tracking, step, from-zero"],
        ),
        (
            {"recipe": "step"},
            ["--recipe step takes either --max-lag-seconds or --max-lag"],
        ),
        (
            {**SECONDS, "target_lag_per_task": 5},
            ["--recipe target-tracking takes either --max-lag-seconds or --target-lag-per-task"],
        ),
        (
            {**MESSAGES, "max_lag": float("nan")},
            ["--max-lag is nan: it must be a number above 0, at most 1000000000000"],
        ),
        (
            {**SECONDS, "high_resolution": True},
            [
                (
                    "--high-resolution needs --recipe step: target tracking of ECS services has periods of 60 s only, "
                    "and an instance takes minutes to start"
                )
            ],
        ),
        (
            {**SECONDS, "min_tasks": 0},
            ["--recipe target-tracking needs --min-tasks 1 or more: only --recipe from-zero scales out from 0"],
        ),
        (
            {**SECONDS, "recipe": "from-zero", "min_tasks": 2},
            ["--recipe from-zero needs --min-tasks 0. For 1 or more tasks, use --recipe target-tracking"],
        ),
        (
            {"recipe": "step", "max_lag_seconds": 60, "min_tasks": 0},
            ["--min-tasks 0 needs --max-lag: without commits, the age of the lag may be unknown"],
        ),
        (
            {**SECONDS, "min_tasks": 12},
            ["--min-tasks is 12 and --max-tasks is 12: --max-tasks must be larger, and both must be 0 to 10000"],
        ),
        (
            {**SECONDS, "scale_out_cooldown": -1, "scale_in_cooldown": 3601},
            [
                "--scale-out-cooldown is -1: it must be a whole number from 0 to 3600",
                "--scale-in-cooldown is 3601: it must be a whole number from 0 to 3600",
            ],
        ),
        (
            {**SECONDS, "service": None, "ecs_cluster": 'prod"'},
            [
                (
                    "--ecs-cluster is 'prod\"': it must be the name that ECS knows, "
                    "up to 255 letters, digits, hyphens and underscores"
                ),
                (
                    "--service is missing: it must be the name that ECS knows, "
                    "up to 255 letters, digits, hyphens and underscores"
                ),
            ],
        ),
        (
            {**SECONDS, **GROUP, "service": "orders", "scale_in_cooldown": 5},
            [
                "--ecs-cluster and --service go with --target ecs",
                "--scale-in-cooldown goes with --target ecs: an Auto Scaling group has the warm-up of its instances",
            ],
        ),
        (
            {**SECONDS, "target": "asg", "asg_name": "a:b"},
            [
                (
                    "--asg-name is 'a:b': it must be the name of the Auto Scaling group, "
                    "up to 255 printable ASCII characters without a colon"
                )
            ],
        ),
        (
            {**SECONDS, "namespace": "AWS/ECS"},
            [
                (
                    "--namespace is 'AWS/ECS': it must be 1 to 255 letters, digits or . - _ / # : "
                    "and must not begin with a colon or AWS/"
                )
            ],
        ),
        (
            {**SECONDS, "sns_topic_arn": "alarms"},
            [
                (
                    "--sns-topic-arn is 'alarms': it must be the ARN of a topic, "
                    "such as arn:aws:sns:eu-west-1:123456789012:alarms"
                )
            ],
        ),
        (
            {**SECONDS, "group": "a\ud800"},
            ["--group is 'a\\ud800': it must be a text in UTF-8"],
        ),
        (
            {**SECONDS, "group": "{{resolve:ssm:secret}}"},
            ["--group is '{{resolve:ssm:secret}}': CloudFormation would replace {{resolve:...}} with another value"],
        ),
        ({**SECONDS, "wake_up_lag": 5}, ["--wake-up-lag goes with --recipe from-zero"]),
    ],
)
def test_invalid_options_are_refused_with_valid_ones(changes: dict[str, Any], sentences: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^--") as caught:
        make_scaling(**changes)
    assert str(caught.value).splitlines() == sentences


def test_all_wrong_options_are_reported_at_once() -> None:
    with pytest.raises(ValueError, match=r"^--") as caught:
        make_scaling(recipe="step", max_lag=-1, service="", namespace="", max_tasks=0)
    assert len(str(caught.value).splitlines()) == 4
