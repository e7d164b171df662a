"""Helpers under ``support`` get pytest's readable assertions too; the run says which Karrot it tests."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import karrot

pytest.register_assert_rewrite("support")

# A machine that is busy with something else says nothing about what is tested.
settings.register_profile("karrot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("karrot")


def pytest_report_header() -> str:
    return f"karrot {karrot.__version__} from {Path(karrot.__file__).parent}"


def pytest_configure() -> None:
    """Check what is tested, and give the programs that tests start a Ctrl-C that they can be sent and no terminal.

    ``make test-wheel`` asks that the installed package is tested, not a checkout that happens to be importable. A shell
    starts what it runs in the background with SIGINT ignored, and that is inherited; pytest-xdist tells its processes
    the width of a terminal, which tables would fit. A machine may set what hides a fault from its own developers: an
    unbuffered standard output never fails when a program ends.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("COLUMNS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)
    if "TESTS_NEED_INSTALLED" in os.environ and "site-packages" not in Path(karrot.__file__).parts:
        raise pytest.UsageError(f"karrot was imported from {karrot.__file__}, which is not an installed package")
