"""The AWS provider of Terraform knows every resource, attribute and block of Karrot's Terraform files."""

import re
from pathlib import Path

import pytest

from support.terraform.provider_schema import schema_problems

ROOT = Path(__file__).resolve().parents[2]
FILES = [*(ROOT / "terraform").rglob("*.tf"), *(ROOT / "examples" / "terraform").rglob("*.tf")]

POLICY = """
resource "aws_iam_policy" "publish" {
  name_prefix = "karrot-"
  policy = aws_appautoscaling_policy.publish.arn
}
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_provider_knows_each_file_of_the_module(path: Path) -> None:
    assert schema_problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("correct", "wrong", "problem"),
    [
        ('"aws_iam_policy"', '"aws_iam_rule"', "aws_iam_rule is not a resource of the schema"),
        ("name_prefix =", "prefix =", "aws_iam_policy.publish has no attribute prefix"),
        ("policy =", "description =", "aws_iam_policy.publish needs policy"),
        ("publish.arn", "publish.json", "aws_appautoscaling_policy has no attribute json to refer to"),
        ('"karrot-"', "[1]", "aws_iam_policy.publish.name_prefix is [1]: it must be a string"),
        ('name_prefix = "karrot-"', "name_prefix {\n}", "aws_iam_policy.publish has no block name_prefix"),
    ],
)
def test_a_mistake_in_a_resource_is_found(correct: str, wrong: str, problem: str) -> None:
    assert schema_problems(POLICY) == []
    assert schema_problems(POLICY.replace(correct, wrong)) == [problem]


@pytest.mark.parametrize(
    ("correct", "wrong", "problem"),
    [
        ("  step_adjustment {", "  step {", "has no block step"),
        ("  cooldown ", "  pause ", "has no attribute pause"),
        ("  scaling_adjustment ", "  # scaling_adjustment ", ".step_adjustment needs scaling_adjustment"),
        (
            "  step_scaling_policy_configuration {",
            "  step_scaling_policy_configuration {\n}\n\\g<0>",
            "can have only one",
        ),
    ],
)
def test_a_mistake_in_a_block_is_found(correct: str, wrong: str, problem: str) -> None:
    text = re.sub(re.escape(correct), wrong, (ROOT / "terraform" / "karrot-scaling" / "main.tf").read_text())
    assert any(problem in found for found in schema_problems(text))
