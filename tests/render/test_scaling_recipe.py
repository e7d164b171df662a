"""Invalid options of a scaling recipe are refused with one sentence."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.render.scaling_recipe import Scaling
from support.autoscaling.scaling_recipes import make_scaling, render_cloudformation
from support.autoscaling.template_to_stack import parse_stack

SECONDS = {"recipe": "target-tracking", "max_lag_seconds": 60}
MESSAGES = {"recipe": "step", "max_lag": 1000}
GROUP = {"target": "asg", "asg_name": "workers"}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        pytest.param(
            {"recipe": "step"},
            ["--recipe step takes either --max-lag-seconds or --max-lag"],
            id="a step without a limit",
        ),
        pytest.param(
            {**SECONDS, "target_lag_per_task": 5},
            ["--recipe target-tracking takes either --max-lag-seconds or --target-lag-per-task"],
            id="two limits",
        ),
        pytest.param(
            {**MESSAGES, "max_lag": float("nan")},
            ["--max-lag is nan: it must be a number above 0, at most 1000000000000"],
            id="a limit that is not a number",
        ),
        pytest.param(
            {**SECONDS, "high_resolution": True},
            [
                (
                    "--high-resolution needs --recipe step: target tracking of ECS services has periods of 60 s only, "
                    "and an instance takes minutes to start"
                )
            ],
            id="high resolution with target tracking",
        ),
        pytest.param(
            {**SECONDS, "min_tasks": 0},
            ["--recipe target-tracking needs --min-tasks 1 or more: only --recipe from-zero scales out from 0"],
            id="target tracking from zero tasks",
        ),
        pytest.param(
            {**SECONDS, "recipe": "from-zero", "min_tasks": 2},
            ["--recipe from-zero needs --min-tasks 0. For 1 or more tasks, use --recipe target-tracking"],
            id="from-zero with at least two tasks",
        ),
        pytest.param(
            {"recipe": "step", "max_lag_seconds": 60, "min_tasks": 0},
            ["--min-tasks 0 needs --max-lag: without commits, the age of the lag may be unknown"],
            id="a step from zero tasks by the age of the lag",
        ),
        pytest.param(
            {**SECONDS, "schedule": ("1:55-04:00=8",)},
            [
                (
                    "--schedule is '1:55-04:00=8': it must be [DAYS ]HH:MM-HH:MM=TASKS, such as 01:55-04:00=8 or "
                    "'MON-FRI 22:00-02:00=8', with two different times"
                )
            ],
            id="an hour of one digit",
        ),
        pytest.param(
            {**SECONDS, "schedule": ("01:00-02:00=1", "03:00-04:00=13"), "timezone": "Europe/Atlantis"},
            [
                "--timezone is 'Europe/Atlantis': it must be the name of a time zone, such as Europe/Paris",
                (
                    "--schedule is '01:00-02:00=1': the number of tasks must be above --min-tasks (1) and at most "
                    "--max-tasks (12)"
                ),
                (
                    "--schedule is '03:00-04:00=13': the number of tasks must be above --min-tasks (1) and at most "
                    "--max-tasks (12)"
                ),
            ],
            id="an unknown time zone, and tasks outside their range",
        ),
        pytest.param(
            {**SECONDS, "schedule": ("SUN 23:00-02:00=8", "MON 01:59-03:00=4")},
            ["--schedule: two of the times overlap or touch, so the number of tasks would be ambiguous"],
            id="times that overlap at the end of the week",
        ),
        pytest.param(
            {**SECONDS, "schedule": ("01:00-02:00=8", "02:00-03:00=4")},
            ["--schedule: two of the times overlap or touch, so the number of tasks would be ambiguous"],
            id="times that touch",
        ),
        pytest.param(
            {**SECONDS, "min_tasks": 12},
            ["--min-tasks is 12 and --max-tasks is 12: --max-tasks must be larger, and both must be 0 to 10000"],
            id="a minimum equal to the maximum",
        ),
        pytest.param(
            {**SECONDS, "scale_out_cooldown": -1, "scale_in_cooldown": 3601},
            [
                "--scale-out-cooldown is -1: it must be a whole number from 0 to 3600",
                "--scale-in-cooldown is 3601: it must be a whole number from 0 to 3600",
            ],
            id="cooldowns outside their range",
        ),
        pytest.param(
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
            id="an ECS cluster with a quote, and no service",
        ),
        pytest.param(
            {**SECONDS, **GROUP, "service": "orders", "scale_in_cooldown": 5},
            [
                "--ecs-cluster and --service go with --target ecs",
                "--scale-in-cooldown goes with --target ecs: an Auto Scaling group has the warm-up of its instances",
            ],
            id="options of ECS for an Auto Scaling group",
        ),
        pytest.param(
            {**SECONDS, "target": "asg", "asg_name": "a:b"},
            [
                (
                    "--asg-name is 'a:b': it must be the name of the Auto Scaling group, "
                    "up to 255 printable ASCII characters without a colon"
                )
            ],
            id="an Auto Scaling group with a colon",
        ),
        pytest.param(
            {**SECONDS, "namespace": "AWS/ECS"},
            [
                (
                    "--namespace is 'AWS/ECS': it must be 1 to 255 letters, digits or . - _ / # : "
                    "and must not begin with a colon or AWS/"
                )
            ],
            id="a namespace of AWS",
        ),
        pytest.param(
            {**SECONDS, "sns_topic_arn": "alarms"},
            [
                (
                    "--sns-topic-arn is 'alarms': it must be the ARN of a topic, "
                    "such as arn:aws:sns:eu-west-1:123456789012:alarms"
                )
            ],
            id="a topic that is not an ARN",
        ),
        pytest.param(
            {**SECONDS, "group": "a\ud800"},
            ["--group is 'a\\ud800': it must be a text in UTF-8"],
            id="a group with half a surrogate pair",
        ),
        pytest.param(
            {**SECONDS, "group": "{{resolve:ssm:secret}}"},
            ["--group is '{{resolve:ssm:secret}}': CloudFormation would replace {{resolve:...}} with another value"],
            id="a group that CloudFormation would replace",
        ),
        pytest.param(
            {**SECONDS, "wake_up_lag": 5},
            ["--wake-up-lag goes with --recipe from-zero"],
            id="a wake-up lag with target tracking",
        ),
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


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty text"),
        "=8",
        "25:00-02:00=8",
        "01:00-01:60=8",
        "MOO 01:00-02:00=8",
        "01:00-01:00=8",
        pytest.param("\u06601:00-02:00=8", id="a digit that is not ASCII"),
    ],
)
def test_a_schedule_that_is_no_time_of_the_week_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--schedule is .* with two different times$"):
        make_scaling(**SECONDS, schedule=(text,))


def scheduled_minimum(asked: Scaling) -> Callable[[float], int]:
    """Return the minimum at a time, by the rendered actions."""
    stack = parse_stack(render_cloudformation(asked), limits=(1, 12))
    assert stack._minimum_at is not None
    return stack._minimum_at


def test_the_scheduled_minimum_follows_the_clock_of_its_time_zone() -> None:
    """The clocks of Paris went forward on 29 March 2026 at 02:00, which was 01:00 UTC."""
    minimum = scheduled_minimum(make_scaling(**SECONDS, schedule=("SAT,SUN 22:00-03:30=8",), timezone="Europe/Paris"))

    def least(text: str) -> int:
        return minimum(datetime.fromisoformat(text).timestamp())

    assert [least(f"2026-03-28T{at}Z") for at in ("20:59", "21:00", "23:59")] == [1, 8, 8]
    assert [least(f"2026-03-29T{at}Z") for at in ("00:59", "01:29", "01:30", "19:59", "20:00")] == [8, 8, 1, 1, 8]
    assert [least(f"2026-03-30T{at}Z") for at in ("01:29", "01:30", "20:00")] == [8, 1, 1]


times = st.integers(0, 1439)
names_of_days = st.sampled_from(["", "MON ", "FRI-TUE ", "SUN,WED ", "MON-SUN "])


@given(days=names_of_days, start=times, minutes=st.integers(1, 1439), at_s=st.integers(1_750_000_000, 1_760_000_000))
@pytest.mark.parametrize("where", [{}, GROUP], ids=["tasks", "instances"])
def test_the_rendered_actions_set_the_minimum_that_the_options_ask_for(
    where: dict[str, str], days: str, start: int, minutes: int, at_s: int
) -> None:
    end = (start + minutes) % 1440
    text = f"{days}{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}=7"
    asked = make_scaling(**SECONDS, **where, schedule=(text,))
    local = datetime.fromtimestamp(at_s, UTC)
    [scheduled] = asked.scheduled
    minute = (local.weekday() * 24 + local.hour) * 60 + local.minute
    is_higher = any((minute - day * 1440 - start) % 10_080 < minutes for day in scheduled.days)
    assert scheduled_minimum(asked)(at_s) == (7 if is_higher else 1)
