"""``karrot render`` on the command line."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from karrot.cli import main
from karrot.render.dashboards import BOARDS
from karrot.render.scaling_recipe import MEASURES

ROOT = Path(__file__).resolve().parents[3]
GROUP = ("--cluster", "prod-eu", "--group", "orders")
SERVICE = ("--ecs-cluster", "prod", "--service", "worker")


def render(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    "name",
    [
        "ecs-autoscaling",
        "cloudwatch-dashboard",
        "alert-rules",
        "recording-rules",
        "dashboard",
    ],
)
def test_every_kind_has_help(name: str) -> None:
    assert render(name, "--help").stdout.startswith(f"Usage: main render {name} ")


def test_every_listed_recipe_can_be_rendered() -> None:
    command = main.commands["render"]
    assert isinstance(command, click.Group)
    choices = {
        parameter.opts[0]: tuple(parameter.type.choices)
        for parameter in command.commands["ecs-autoscaling"].params
        if isinstance(parameter.type, click.Choice)
    }
    assert choices == {"--recipe": tuple(MEASURES), "--target": ("ecs", "asg")}


def test_a_recipe_is_printed_as_cloudformation() -> None:
    options = ("--recipe", "step", "--max-lag", "1000", "--max-tasks", "12", "--no-shared", *SERVICE, *GROUP)
    printed = render("ecs-autoscaling", *options)
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert list(yaml.safe_load(printed.stdout)["Resources"]) == [
        *("ScalableTarget", "LagHighPolicy", "LagHighAlarm", "LagLowPolicy", "LagLowAlarm"),
        *("StatusAlarm", "NoLagAlarm", "MaxCapacityAlarm"),
    ]


def test_a_recipe_for_instances_needs_only_their_auto_scaling_group() -> None:
    options = ("--recipe", "from-zero", "--target-lag-per-task", "6000", "--max-tasks", "12", *GROUP)
    printed = render("ecs-autoscaling", *options, "--target", "asg", "--asg-name", "workers")
    assert list(yaml.safe_load(printed.stdout)["Resources"])[:3] == ["WakeUpPolicy", "WakeUpAlarm", "LagTracking"]


def test_wrong_recipe_options_are_refused_with_one_line_each() -> None:
    refused = render("ecs-autoscaling", "--recipe", "step", "--max-tasks", "12", "--service", "a b", *GROUP)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert [line.split(" is ")[0] for line in refused.stderr.splitlines()] == [
        "karrot: --ecs-cluster",
        "karrot: --service",
        "karrot: --recipe step takes either --max-lag-seconds or --max-lag",
    ]


def test_alerts_have_the_given_thresholds_and_addresses() -> None:
    asked = ("--set", "lagSeconds=60", "--set", "errorFor=10m", "--external-url", "https://karrot.example.org")
    printed = render("alert-rules", *asked)
    assert (printed.exit_code, printed.stderr) == (0, "")
    first, second = yaml.safe_load(printed.stdout)["groups"][0]["rules"][:2]
    assert first["for"] == "10m"
    assert first["annotations"]["runbook_url"] == "https://karrot.example.org/runbooks/KarrotConsumerError.md"
    assert first["annotations"]["karrot_url"].startswith("https://karrot.example.org/group?cluster={{ $labels.cluster")
    assert "karrot_consumer_lag_seconds) > 60\n" in second["expr"]


def test_alerts_take_karrot_s_address_from_karrot_s_own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = render("alert-rules").stdout
    assert "karrot_url" not in printed
    assert "/docs/runbooks/KarrotConsumerError.md" in printed
    monkeypatch.setenv("KARROT_EXTERNAL_URL", "https://karrot.example.org")
    assert "karrot_url: https://karrot.example.org/group?" in render("alert-rules").stdout


def test_invalid_thresholds_are_refused_with_one_line_each() -> None:
    refused = render("alert-rules", "--set", "lagSeconds=soon", "--set", "errorFor", "--runbook-url", "wiki")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert [line.split(" is ")[0] for line in refused.stderr.splitlines()] == [
        *("karrot: --set lagSeconds", "karrot: --set errorFor", "karrot: --runbook-url"),
    ]


def test_recording_rules_are_printed() -> None:
    printed = render("recording-rules")
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert all(":" in rule["record"] for rule in yaml.safe_load(printed.stdout)["groups"][0]["rules"])


def test_the_commands_of_the_documentation_work() -> None:
    page = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
    commands = re.findall(r"^karrot render (ecs-autoscaling .*?) > scaling\.yaml$", page, re.MULTILINE | re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        printed = render(*shlex.split(command.replace("\\\n", " ")))
        assert (printed.exit_code, printed.stderr) == (0, "")
        assert "LagTracking" in yaml.safe_load(printed.stdout)["Resources"]


def test_every_dashboard_can_be_rendered() -> None:
    command = main.commands["render"]
    assert isinstance(command, click.Group)
    [board, _] = command.commands["dashboard"].params
    assert isinstance(board.type, click.Choice)
    assert tuple(board.type.choices) == BOARDS


def test_a_grafana_dashboard_is_printed_and_links_to_karrot_s_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(render("dashboard", "itself").stdout)["uid"] == "karrot-itself"
    monkeypatch.setenv("KARROT_EXTERNAL_URL", "https://karrot.example.org")
    links = json.loads(render("dashboard", "group").stdout)["links"]
    assert links[-1]["url"].startswith("https://karrot.example.org/group?cluster=${cluster:percentencode}&")
    refused = render("dashboard", "group", "--external-url", "wiki")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_dashboard_is_printed_as_json() -> None:
    printed = render("cloudwatch-dashboard", "--region", "eu-west-1", *SERVICE, *GROUP)
    assert len(json.loads(printed.stdout)["widgets"]) == 3
