from collections.abc import Mapping

import pytest

from karrot.reporters.cloudwatch.boto_client import find_region
from karrot.settings.options import CloudWatch as Options

COMPAT = Options(default_region="us-east-1")


@pytest.mark.parametrize(
    ("environ", "options", "profile", "region"),
    [
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, COMPAT, "eu-west-3", "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-2"}, COMPAT, "eu-west-3", "eu-west-2"),
        ({"AWS_REGION": " ", "AWS_DEFAULT_REGION": "eu-west-2"}, COMPAT, "eu-west-3", "eu-west-2"),
        ({}, COMPAT, "eu-west-3", "us-east-1"),
        ({}, Options(), "eu-west-3", "eu-west-3"),
        ({}, Options(), None, None),
    ],
    ids=["AWS_REGION", "AWS_DEFAULT_REGION", "a blank AWS_REGION", "compat 2019", "the profile", "no source"],
)
def test_the_first_source_that_has_a_region_is_used(
    environ: Mapping[str, str], options: Options, profile: str | None, region: str | None
) -> None:
    assert find_region(options, environ, profile) == region
