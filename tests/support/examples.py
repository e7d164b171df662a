"""Chooses how many examples Hypothesis makes: fewer where every run has the same ones."""

from hypothesis import settings

_GATE = 50


def examples(count: int) -> settings:
    """So many examples in ``make deep``, which makes new ones in each run. All other runs make at most 50."""
    return settings(max_examples=count if settings.get_current_profile_name() == "random" else min(count, _GATE))
