"""Holds what ``KARROT_COMPAT=2019`` turns on: the first Karrot's defaults, so that no site loses its scaling metric."""

from collections.abc import Mapping

from karrot.settings.sources import Given

REGION = "us-east-1"
"""The AWS Region of the first Karrot, if the environment sets none."""

_NAME, _FIRST_KARROT = "KARROT_COMPAT", "2019"
_DEFAULTS = {
    "KARROT_REPORTERS": "prometheus,cloudwatch",
    "KARROT_CLOUDWATCH_NAMESPACE": "GumGum/Kafka/Burrow/ConsumerLag",
    "KARROT_CLOUDWATCH_LAYOUT": "legacy",
    # The first Karrot had no limit. With a limit, some groups would lose the metric by which their service scales.
    "KARROT_CLOUDWATCH_MAX_GROUPS": "1000000",
}


def with_defaults(given: Mapping[str, Given]) -> dict[str, Given]:
    """The given values. With ``KARROT_COMPAT=2019``, missing values get the first Karrot's defaults."""
    asked = given.get(_NAME)
    if asked is None or asked.text.strip() != _FIRST_KARROT:
        return dict(given)
    return {name: Given(f"{_NAME}={_FIRST_KARROT}", text) for name, text in _DEFAULTS.items()} | dict(given)
