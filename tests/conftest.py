"""Settings of every test run: assertion rewriting for ``support``, Hypothesis, the report of the tested Karrot."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import karrot

pytest.register_assert_rewrite("support")

# A busy machine makes examples slow without a fault in the tested code.
settings.register_profile("karrot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("karrot")


def pytest_report_header() -> str:
    return f"karrot {karrot.__version__} from {Path(karrot.__file__).parent}"


def pytest_configure() -> None:
    """Check which package is tested, and clean the environment of programs that tests start.

    ``make test-wheel`` requires that the installed package is tested, not a checkout that happens to be importable.
    A shell starts background commands with SIGINT ignored, and child processes inherit that; so SIGINT is restored.
    pytest-xdist sets the width of a terminal for its processes, and tables would fit themselves to it; so it is
    removed. A machine may have settings that hide a fault: an unbuffered standard output never fails when a program
    ends; so they are removed too.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("COLUMNS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    if "TESTS_NEED_INSTALLED" in os.environ and "site-packages" not in Path(karrot.__file__).parts:
        raise pytest.UsageError(f"karrot was imported from {karrot.__file__}, which is not an installed package")
