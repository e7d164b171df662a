"""Helpers under ``support`` get pytest's readable assertions too; the run says which Karrot it tests."""

import os
from pathlib import Path

import pytest

import karrot

pytest.register_assert_rewrite("support.eventlog_contract", "support.load")


def pytest_report_header() -> str:
    return f"karrot {karrot.__version__} from {Path(karrot.__file__).parent}"


def pytest_configure() -> None:
    """``make test-wheel`` asks that the installed package is tested, not a checkout that happens to be importable."""
    if "TESTS_NEED_INSTALLED" in os.environ and "site-packages" not in Path(karrot.__file__).parts:
        raise pytest.UsageError(f"karrot was imported from {karrot.__file__}, which is not an installed package")
