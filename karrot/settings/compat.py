"""Applies ``KARROT_COMPAT``: the defaults of an earlier Karrot, for settings that nobody set."""

from collections.abc import Mapping

from karrot.settings.sources import Given

_COMPAT = "KARROT_COMPAT"
_FIRST_KARROT = "2019"
_DEFAULTS = {
    "KARROT_REPORTERS": "prometheus,cloudwatch",
    "KARROT_CLOUDWATCH_NAMESPACE": "GumGum/Kafka/Burrow/ConsumerLag",
    "KARROT_CLOUDWATCH_LAYOUT": "legacy",
    # It had no bound: a group beyond one would lose the metric that it scales by.
    "KARROT_CLOUDWATCH_MAX_GROUPS": "1000000",
}


def completed(given: Mapping[str, Given]) -> dict[str, Given]:
    """What was given, with the first Karrot's defaults below it if they were asked for."""
    asked = given.get(_COMPAT)
    if asked is None or asked.text.strip() != _FIRST_KARROT:
        return dict(given)
    label = f"{_COMPAT}={_FIRST_KARROT}"
    return {name: Given(label, text) for name, text in _DEFAULTS.items()} | dict(given)
