"""The Terraform files describe the same resources as the CloudFormation templates."""

import pytest

from karrot.render.ecs_autoscaling import autoscaling
from support.autoscaling.scaling_recipes import RECIPES, make_scaling, render_cloudformation
from support.autoscaling.terraform_to_cloudformation import cloudformation_resources, parse_terraform


@pytest.mark.parametrize("name", RECIPES)
def test_each_resource_has_exactly_the_attributes_of_its_counterpart(name: str) -> None:
    assert (
        cloudformation_resources(autoscaling(RECIPES[name], "terraform"))
        == render_cloudformation(RECIPES[name])["Resources"]
    )


def test_the_policy_to_attach_is_an_output_in_both() -> None:
    [output] = parse_terraform(autoscaling(make_scaling(recipe="step", max_lag=1), "terraform"))["output"]
    assert output["karrot_prod_orders-worker_publish_policy_arn"]["value"] == {
        "Ref": "aws_iam_policy.karrot_prod_orders-worker_PublishPolicy.arn"
    }
    outputs = render_cloudformation(make_scaling(recipe="step", max_lag=1))["Outputs"]
    assert outputs["PublishPolicyArn"]["Value"] == {"Ref": "PublishPolicy"}


def test_resources_of_several_services_can_share_a_folder() -> None:
    texts = [
        autoscaling(make_scaling(recipe="step", max_lag=1, **where), "terraform")
        for where in (
            {"service": "a-b"},
            {"service": "a_b"},
            {"target": "asg", "asg_name": "a b"},
            {"target": "asg", "asg_name": "a_b"},
        )
    ]
    labels = [
        (kind, label)
        for text in texts
        for resource in parse_terraform(text)["resource"]
        for kind, named in resource.items()
        for label in named
    ]
    assert len(labels) == len(set(labels))


def test_attributes_are_aligned_as_by_terraform_fmt() -> None:
    text = autoscaling(make_scaling(recipe="step", max_lag=1), "terraform")
    assert (
        '  alarm_description = "The lag is too high"\n'
        '  namespace         = "Karrot"\n'
        '  metric_name       = "ScalableLag"\n'
        "  dimensions = {\n"
        '    Cluster       = "prod-eu"\n'
        '    ConsumerGroup = "orders"\n'
        "  }\n"
        '  statistic           = "Maximum"\n'
        "  period              = 60\n"
    ) in text
