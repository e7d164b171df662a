"""The Terraform module plans the same resources as ``karrot render ecs-autoscaling``, for many services at once.

So both have the same thresholds.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from karrot.render.ecs_autoscaling import autoscaling
from karrot.render.scaling_recipe import MEASURES, Scaling
from support.autoscaling.scaling_recipes import RECIPES, TOPIC, make_scaling, render_cloudformation
from support.autoscaling.terraform_to_cloudformation import cloudformation_resources, parse_literal, parse_terraform
from support.terraform.hcl_blocks import read_blocks
from support.terraform.terraform_plan import PlanError, Planned, copy_without_provider, plan, terraform

ROOT = Path(__file__).resolve().parents[2]
MODULE = Path("terraform", "karrot-scaling")
EXAMPLE = Path("examples", "terraform")

OF_MODULE = {"namespace", "sns_topic_arn", "shared"}
ONLY_FOR_INSTANCES = {"target", "asg_name"}
FOR_SERVICES = {name: asked for name, asked in RECIPES.items() if asked.on_ecs} | {
    "every-option": make_scaling(
        recipe="step",
        max_lag=0.1,
        min_tasks=3,
        max_tasks=10_000,
        scale_out_cooldown=0,
        scale_in_cooldown=3600,
        container_insights=True,
        namespace="Team/Karrot#1:2",
        sns_topic_arn=TOPIC,
        group='with "quotes", ${dollars} and \\',
    ),
    "two-times": make_scaling(
        recipe="from-zero", max_lag_seconds=60, schedule=("MON,WED-THU 22:00-02:00=12", "FRI-SUN 02:01-22:01=1")
    ),
    "long-names": make_scaling(recipe="from-zero", target_lag_per_task=1, ecs_cluster="c" * 255, service="s" * 255),
}

OPTION = re.compile(
    r"^    # (?P<description>[^\n]+)\n    (?P<name>\w+) += "
    r"(?P<optional>optional\()?(?P<type>\w+)(?:\(object\(\{.*?\}\)\))?(?:, (?P<default>[^)]+))?",
    re.MULTILINE | re.DOTALL,
)
"""An option of a service in variables.tf: its comment, name, type and default."""

DAYS = {"FRI-SUN": ["SUN", "FRI", "SAT"], "MON,WED-THU": ["MON", "WED", "THU"]}
"""Days of ``--schedule`` as the module takes them, in any order."""

NIGHT = {"start": "22:00", "end": "02:00", "min_tasks": 8}
SERVICE: dict[str, Any] = {
    "ecs_cluster": "prod",
    "service": "orders-worker",
    "burrow_cluster": "prod-eu",
    "group": "orders",
    "recipe": "step",
    "max_lag": 1000,
    "max_tasks": 12,
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terraform") / MODULE
    copy_without_provider(ROOT / MODULE, folder)
    return folder


@pytest.fixture(scope="module")
def planned(module: Path) -> Callable[[str], Planned]:
    return cache(lambda name: plan(module, variables(FOR_SERVICES[name])))


def variables(asked: Scaling) -> dict[str, Any]:
    """Return the variables of the module for one service. Options without a value are left out."""
    given = {name: value for name, value in asdict(asked).items() if value is not None}
    given["schedule"] = [scheduled_time(text) for text in asked.schedule]
    service = {name: given[name] for name in given.keys() - OF_MODULE - ONLY_FOR_INSTANCES}
    return {**{name: given[name] for name in given.keys() & OF_MODULE}, "services": {"orders": service}}


def scheduled_time(text: str) -> dict[str, Any]:
    """Return ``--schedule`` as the module takes it."""
    times, _, tasks = text.partition("=")
    days, _, clock = times.rpartition(" ")
    start, _, end = clock.partition("-")
    return {"start": start, "end": end, "min_tasks": int(tasks), **({"days": DAYS[days]} if days else {})}


def rendered_resources(asked: Scaling, key: str) -> dict[str, dict[str, Any]]:
    """Return the resources that the command renders, under the keys that they have in the module."""
    own = render_cloudformation(asked)["Resources"]
    found = {key: own}
    if asked.shared:
        # The groups of a Kafka cluster share this alarm, so its name cannot be the name of a service.
        heartbeat = own.pop("HeartbeatAlarm")
        heartbeat["Properties"]["AlarmName"] = f"karrot/kafka:{asked.burrow_cluster}/heartbeat-alarm"
        found |= {asked.burrow_cluster: {"HeartbeatAlarm": heartbeat}, "0": {"PublishPolicy": own.pop("PublishPolicy")}}
    return found


def test_the_module_has_each_option_of_the_command() -> None:
    [services, *others] = read_blocks((ROOT / MODULE / "variables.tf").read_text(encoding="utf-8"))
    options = {found["name"] for found in OPTION.finditer(services.attributes["type"])}
    assert options == {field.name for field in fields(Scaling)} - OF_MODULE - ONLY_FOR_INSTANCES
    assert {block.labels[0] for block in others} == OF_MODULE | {"heartbeats"}


@pytest.mark.parametrize("name", FOR_SERVICES)
def test_the_module_plans_what_the_command_renders(planned: Callable[[str], Planned], name: str) -> None:
    expected = rendered_resources(FOR_SERVICES[name], "orders")
    assert cloudformation_resources(planned(name).resources) == expected


@pytest.mark.parametrize("name", FOR_SERVICES)
def test_the_module_names_the_settings_that_the_command_names(planned: Callable[[str], Planned], name: str) -> None:
    text = autoscaling(FOR_SERVICES[name])
    metrics = re.search(r"KARROT_CLOUDWATCH_METRICS +must contain (\S+)", text)
    settings = dict(planned(name).outputs["karrot_settings"])
    assert metrics
    assert settings.pop("KARROT_CLOUDWATCH_METRICS") == metrics[1]
    assert settings.pop("KARROT_CLOUDWATCH_NAMESPACE") == FOR_SERVICES[name].namespace
    assert ("KARROT_CLOUDWATCH_RESOLUTION" in settings) == FOR_SERVICES[name].high_resolution
    for setting, value in settings.items():
        assert re.search(rf"{setting} +(must|should) be {value}\b", text)


def test_each_group_of_the_example_gets_the_resources_of_its_own_recipe(tmp_path: Path) -> None:
    for folder in (MODULE, EXAMPLE):
        copy_without_provider(ROOT / folder, tmp_path / folder)
    assert terraform("init", folder=tmp_path / EXAMPLE).returncode == 0
    resources, outputs = plan(tmp_path / EXAMPLE, {})

    [called] = parse_terraform((ROOT / EXAMPLE / "main.tf").read_text(encoding="utf-8"))["module"]
    services = called["karrot_scaling"]["services"]
    expected: dict[str, Any] = {}
    for key, options in services.items():
        schedule = tuple("{start}-{end}={min_tasks}".format(**time) for time in options.pop("schedule", ()))
        asked = make_scaling(**options, schedule=schedule, sns_topic_arn=TOPIC, shared=False)
        expected |= rendered_resources(asked, key)
    found = cloudformation_resources(resources)
    assert len(services) == 3
    assert {key: list(found[key]) for key in found.keys() - expected.keys()} == {
        "prod-eu": ["HeartbeatAlarm"],
        "prod-us": ["HeartbeatAlarm"],
        "0": ["PublishPolicy"],
    }
    assert {key: found[key] for key in expected} == expected

    names = [body.get("name") or body.get("alarm_name") for body in resources.values()]
    assert [name for name, count in Counter(names).items() if name and count > 1] == []
    assert outputs["publish_policy_arn"] == {"Ref": "aws_iam_policy.publish[0].arn"}


def test_each_combination_of_options_gets_the_resources_that_the_command_renders(module: Path) -> None:
    """All of them are services of one plan."""
    measures = [(recipe, measure) for recipe, measures in MEASURES.items() for measure in measures]
    services: dict[str, Scaling] = {}
    for values in product(measures, (None, 0, 3), (False, True), (False, True), (1, 10)):
        (recipe, measure), min_tasks, container_insights, high_resolution, wake_up_lag = values
        name = f"worker-{len(services)}"
        with suppress(ValueError):  # the options contradict each other
            services[name] = make_scaling(
                service=name,
                recipe=recipe,
                min_tasks=min_tasks,
                container_insights=container_insights,
                high_resolution=high_resolution,
                wake_up_lag=wake_up_lag,
                shared=False,
                **{measure: 250.5},
            )
    assert {(asked.recipe, asked.measure) for asked in services.values()} == set(measures)

    expected: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for name, asked in services.items():
        expected |= rendered_resources(asked, name)
        [given[name]] = variables(asked)["services"].values()
    assert cloudformation_resources(plan(module, {"services": given, "shared": False}).resources) == expected


def test_two_services_of_one_group_share_only_the_heartbeat_and_the_policy(module: Path) -> None:
    services = {"orders": SERVICE, "copy": {**SERVICE, "ecs_cluster": "test"}}
    kinds = Counter(each.partition("[")[0] for each in plan(module, {"services": services}).resources)
    assert {kind for kind, count in kinds.items() if count == 1} == {
        "aws_cloudwatch_metric_alarm.heartbeat",
        "aws_iam_policy.publish",
    }


LATER = "terraform_data.later.output"
"""A value that Terraform knows only after the apply."""


def plan_later(root: Path, service: Mapping[str, str], inputs: Mapping[str, str]) -> Planned:
    """Plan a use of the module with expressions for options of its service and for its other inputs."""
    copy_without_provider(ROOT / MODULE, root / MODULE)
    options = {name: json.dumps(value) for name, value in SERVICE.items()} | dict(service)
    lines = [f"{name} = {value}" for name, value in {"source": f'"./{MODULE}"', **inputs}.items()]
    lines += ["services = { orders = {", *(f"{name} = {value}" for name, value in options.items()), "} }"]
    resource = 'resource "terraform_data" "later" { input = "later" }'
    (root / "main.tf").write_text("\n".join([resource, 'module "scaling" {', *lines, "}"]), encoding="utf-8")
    assert terraform("init", folder=root).returncode == 0
    return plan(root, {})


@pytest.mark.parametrize(
    ("service", "inputs"),
    [
        pytest.param({"burrow_cluster": LATER}, {"heartbeats": f"{{ main = {LATER} }}"}, id="the Kafka cluster"),
        pytest.param({"group": LATER, "ecs_cluster": LATER, "service": LATER}, {"sns_topic_arn": LATER}, id="the rest"),
        pytest.param({"max_lag": f"length({LATER})", "max_tasks": f"length({LATER})"}, {}, id="the numbers"),
    ],
)
def test_a_value_from_a_resource_of_the_same_apply_can_be_planned(
    service: dict[str, str], inputs: dict[str, str], tmp_path: Path
) -> None:
    addresses = plan_later(tmp_path, service, inputs).resources.keys()
    key = "main" if inputs.keys() & {"heartbeats"} else "prod-eu"
    assert f'aws_cloudwatch_metric_alarm.heartbeat["{key}"]' in addresses


def test_without_the_names_of_heartbeats_terraform_shows_a_line_that_names_the_input_to_set(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        plan_later(tmp_path, {"burrow_cluster": LATER}, {})
    assert "for_each = local.heartbeats" in terraform("plan", "-no-color", folder=tmp_path).stderr
    line = next(each for each in (ROOT / MODULE / "alarms.tf").read_text().splitlines() if "local.heartbeats" in each)
    assert "set the input heartbeats" in line


def test_each_kafka_cluster_of_a_service_needs_a_heartbeat(module: Path) -> None:
    services = {"orders": SERVICE}
    with pytest.raises(PlanError, match="heartbeats must contain the burrow_cluster of orders"):
        plan(module, {"services": services, "heartbeats": {"main": "prod-us"}})
    assert plan(module, {"services": services, "heartbeats": {"main": "prod-us"}, "shared": False}).resources


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            {"min_tasks": 12},
            'both must be whole numbers from 0 to 10000. Given: {"orders":[12,12]}.',
            id="a minimum equal to the maximum",
        ),
        pytest.param({"max_tasks": 10_001}, "max_tasks must be larger than min_tasks", id="a maximum above 10000"),
        pytest.param({"min_tasks": -1}, "max_tasks must be larger than min_tasks", id="a negative minimum"),
        pytest.param(
            {"recipe": "steps"},
            'recipe must be target-tracking, step or from-zero. Given: {"orders":"steps"}.',
            id="an unknown recipe",
        ),
        pytest.param({"max_lag": None}, "Each service needs exactly one limit of the lag", id="no limit"),
        pytest.param({"max_lag_seconds": 60}, "Each service needs exactly one limit of the lag", id="two limits"),
        pytest.param(
            {"max_lag": None, "target_lag_per_task": 60},
            "Each service needs exactly one limit of the lag",
            id="a lag per task with the recipe step",
        ),
        pytest.param(
            {"recipe": "from-zero"},
            "Each service needs exactly one limit of the lag",
            id="a lag in messages with the recipe from-zero",
        ),
        pytest.param(
            {"recipe": "target-tracking"},
            "Each service needs exactly one limit of the lag",
            id="a lag in messages with the recipe target-tracking",
        ),
        pytest.param({"max_lag": 0}, "must be above 0 and at most 1000000000000", id="a limit of 0"),
        pytest.param({"max_lag": 2e12}, "must be above 0 and at most 1000000000000", id="a limit above the largest"),
        pytest.param(
            {"wake_up_lag": 5}, "wake_up_lag goes with the recipe from-zero.", id="a wake-up lag with the recipe step"
        ),
        pytest.param(
            {"recipe": "from-zero", "max_lag": None, "max_lag_seconds": 60, "high_resolution": True},
            "high_resolution needs the recipe step",
            id="high resolution with the recipe from-zero",
        ),
        pytest.param(
            {"recipe": "from-zero", "max_lag": None, "max_lag_seconds": 60, "min_tasks": 1},
            "The recipe from-zero needs min_tasks 0.",
            id="from-zero with at least one task",
        ),
        pytest.param(
            {"recipe": "target-tracking", "max_lag": None, "max_lag_seconds": 60, "min_tasks": 0},
            "The recipe target-tracking needs min_tasks 1 or more",
            id="target tracking from zero tasks",
        ),
        pytest.param(
            {"max_lag": None, "max_lag_seconds": 60, "min_tasks": 0},
            "The recipe step with min_tasks 0 needs max_lag",
            id="a step from zero tasks by the age of the lag",
        ),
        pytest.param(
            {"schedule": ["01:00-01:00=8"]},
            "must be two different times such as 01:55 and 22:00",
            id="a time that ends when it starts",
        ),
        pytest.param(
            {"schedule": ["24:00-01:00=8"]}, "must be two different times such as 01:55 and 22:00", id="an hour of 24"
        ),
        pytest.param(
            {"schedule": ["01:00-02:00=1"]},
            "must be a whole number above min_tasks of the service and at most max_tasks",
            id="scheduled tasks equal to the minimum",
        ),
        pytest.param(
            {"schedule": ["01:00-02:00=13"]},
            "must be a whole number above min_tasks of the service and at most max_tasks",
            id="scheduled tasks above the maximum",
        ),
        pytest.param(
            {"schedule": ["01:00-02:00=8", "02:00-03:00=4"]},
            "Two times in schedule of orders overlap or touch",
            id="times that touch",
        ),
        pytest.param(
            {"schedule": ["FRI-SUN 23:00-02:00=8", "MON,WED-THU 01:59-03:00=4"]},
            "overlap or touch",
            id="times that overlap at the end of the week",
        ),
        pytest.param(
            {"timezone": "Europe / Paris"}, "timezone must be the name of a time zone", id="a time zone with spaces"
        ),
        pytest.param({"scale_out_cooldown": -1}, "must be whole numbers from 0 to 3600", id="a negative cooldown"),
        pytest.param(
            {"scale_in_cooldown": 3601}, "must be whole numbers from 0 to 3600", id="a cooldown above an hour"
        ),
        pytest.param(
            {"ecs_cluster": "a/b"},
            "ecs_cluster and service must be the names that ECS knows",
            id="an ECS cluster with a slash",
        ),
        pytest.param(
            {"service": ""}, "ecs_cluster and service must be the names that ECS knows", id="an empty service"
        ),
    ],
)
def test_the_module_refuses_what_the_command_refuses(module: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, KeyError), match=r"."):  # the choices of --recipe are click's
        make_scaling(**{**SERVICE, **change})
    schedule = [scheduled_time(text) for text in change.get("schedule", ())]
    with pytest.raises(PlanError) as refused:
        plan(module, {"services": {"orders": {**SERVICE, **change, "schedule": schedule}}})
    assert any(sentence in message for message in refused.value.args), refused.value.args


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param(
            {"services": {"a": SERVICE, "b": SERVICE}},
            "An ECS service can be in services only once",
            id="one service twice",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "group": "größe"}}},
            "use karrot render ecs-autoscaling, which encodes it",
            id="a group that is not ASCII",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "group": "50%"}}},
            "use karrot render ecs-autoscaling, which encodes it",
            id="a group with a percent sign",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "group": "two\nlines"}}},
            "use karrot render ecs-autoscaling, which encodes it",
            id="a group with a line break",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "burrow_cluster": " "}}},
            "use karrot render ecs-autoscaling, which encodes it",
            id="a Kafka cluster that is a space",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "burrow_cluster": "k" * 201}}},
            "use karrot render ecs-autoscaling",
            id="a Kafka cluster of 201 letters",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "max_tasks": 2.5}}}, "both must be whole numbers", id="half a task"
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "schedule": [{**NIGHT, "days": ["MONDAY"]}]}}},
            "must be different days of MON",
            id="an unknown day",
        ),
        pytest.param(
            {"services": {"a": {**SERVICE, "schedule": [{**NIGHT, "days": []}]}}},
            "must be different days of MON",
            id="no day",
        ),
        pytest.param(
            {"services": {}, "namespace": "AWS/Karrot"},
            'must not begin with a colon or AWS/. Given: "AWS/Karrot".',
            id="a namespace of AWS",
        ),
        pytest.param(
            {"services": {}, "sns_topic_arn": "alarms"},
            "sns_topic_arn must be the ARN of a topic",
            id="a topic that is not an ARN",
        ),
    ],
)
def test_the_module_refuses_what_it_cannot_do(module: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan(module, given)
    assert any(sentence in message for message in refused.value.args), refused.value.args


def test_the_readme_describes_each_variable_option_and_output() -> None:
    readme = (ROOT / MODULE / "README.md").read_text(encoding="utf-8")
    declared = [
        (block, parse_literal(block.attributes["description"]))
        for name in ("variables.tf", "outputs.tf")
        for block in read_blocks((ROOT / MODULE / name).read_text(encoding="utf-8"))
    ]
    options = OPTION.finditer(declared[0][0].attributes["type"])
    assert [line for line in readme.splitlines() if line.startswith("| `")] == [
        *(
            f"| `{block.labels[0]}` | {block.attributes['type'].partition('(')[0]} "
            f"| {block.attributes.get('default', 'required')} | {description} |"
            for block, description in declared
            if block.kind == "variable"
        ),
        *(
            f"| `{found['name']}` | {found['type']} "
            f"| {(found['default'] or 'null') if found['optional'] else 'required'} | {found['description']} |"
            for found in options
        ),
        *(f"| `{block.labels[0]}` | {description} |" for block, description in declared if block.kind == "output"),
    ]


@pytest.mark.parametrize("folder", [MODULE, EXAMPLE], ids=str)
def test_the_files_are_formatted_by_terraform(folder: Path) -> None:
    ended = terraform("fmt", "-check", "-diff", folder=ROOT / folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
