"""Leaves some cases of a parametrized test to ``make deep``."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def deep_unless(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Mark the cases that are not among the quick ones as ``deep``. Use it if the quick ones reach the same code."""
    return [each if each in quick else pytest.param(each, marks=pytest.mark.deep) for each in cases]
