"""Settings of every test run: assertion rewriting for ``support``, Hypothesis, the report of the tested Karrot."""

import atexit
import functools
import gc
import importlib
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import karrot

if TYPE_CHECKING:
    from karrot.eventlog.sqlite.store import MemoryEventLog
    from support.manual_clock import ManualClock

pytest.register_assert_rewrite("support")

# A busy machine makes examples slow without a fault in the tested code. Each run has the same examples, so that no
# change is refused by chance; `make deep` looks for new ones with --hypothesis-profile=random.
_OURS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _OURS, derandomize=True, max_examples=50)
settings.register_profile("random", _OURS, print_blob=True)
settings.load_profile("same")


@functools.cache
def _rfc3987_syntax() -> ModuleType:
    del sys.modules["rfc3987_syntax"]
    return importlib.import_module("rfc3987_syntax")


# jsonschema imports this module, which compiles 38 grammars in a second. They are needed only for the format iri.
_imported_when_needed = ModuleType("rfc3987_syntax")
_imported_when_needed.__dict__["is_valid_syntax"] = lambda *told: _rfc3987_syntax().is_valid_syntax(*told)
sys.modules.setdefault(_imported_when_needed.__name__, _imported_when_needed)


@pytest.fixture
def clock() -> "ManualClock":
    """A clock that only the test moves."""
    from support.manual_clock import ManualClock  # noqa: PLC0415 - only the tests that ask for it load it

    return ManualClock()


@pytest.fixture
def log(clock: "ManualClock") -> "MemoryEventLog":
    """An empty event log in memory, with the test's clock."""
    from karrot.eventlog.sqlite.store import MemoryEventLog  # noqa: PLC0415 - as above

    return MemoryEventLog(clock)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, default=1, help="run each test so many times, as tests of their own")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (times := metafunc.config.getoption("--times")) > 1:
        metafunc.fixturenames.append("_time")
        metafunc.parametrize("_time", range(times))


def pytest_report_header() -> str:
    return f"karrot {karrot.__version__} from {Path(karrot.__file__).parent}"


def pytest_collection_finish() -> None:
    """Leave the modules and the collected tests out of garbage collections. With them, each takes up to a second.

    Without them, pytest's own collections at the end of a run are quick too. After these, the process ends as usual:
    DuckDB reports objects that are left.
    """
    gc.enable()
    gc.freeze()
    atexit.register(gc.unfreeze)


def pytest_configure() -> None:
    """Check which package is tested, and clean the environment of programs that tests start.

    ``make test-wheel`` requires that the installed package is tested, not a checkout that happens to be importable.
    A shell starts background commands with SIGINT ignored, and child processes inherit that; so SIGINT is restored.
    pytest-xdist sets the width of a terminal for its processes, and tables would fit themselves to it; so it is
    removed. A machine may have settings that hide a fault: an unbuffered standard output never fails when a program
    ends; so they are removed too. So are a developer's own settings of Karrot, AWS and PostgreSQL.
    """
    gc.disable()  # until the tests are collected
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [*os.environ]:
        is_own = name.startswith(("KARROT_", "AWS_", "PG")) and name != "KARROT_E2E_CACHE"
        if is_own or name in {"COLUMNS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}:
            del os.environ[name]
    if "TESTS_NEED_INSTALLED" in os.environ and "site-packages" not in Path(karrot.__file__).parts:
        raise pytest.UsageError(f"karrot was imported from {karrot.__file__}, which is not an installed package")


def pytest_runtest_setup() -> None:
    """Make botocore quick in this process, if it is imported: each process would pay for an import here.

    All sessions share one loader of data files, as all clients of one session do. So each file is parsed once. A
    request is repeated without a pause.

    A command that an earlier test ran in this process may have left its handlers of signals.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, handler)
    if "botocore.session" in sys.modules and not hasattr(sys.modules["botocore.session"].create_loader, "cache_info"):
        botocore = sys.modules["botocore"]
        botocore.session.create_loader = functools.cache(botocore.session.create_loader)
        botocore.endpoint.time = SimpleNamespace(sleep=lambda _seconds: None)
        botocore.utils.ContainerMetadataFetcher.SLEEP_TIME = 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up the skipped tests by reason, and write how the tests ended to the file that ``make test`` shows last."""
    stats = terminalreporter.stats
    reasons = Counter(_reason(report) for report in stats.get("skipped", ()))
    skips = [f"{count} skipped: {reason}" for reason, count in reasons.most_common()]
    for line in skips:
        terminalreporter.line(line)
    if summary := os.environ.get("TESTS_SUMMARY"):
        counts = ", ".join(f"{len(stats[each])} {each}" for each in ("passed", "failed", "error") if each in stats)
        bad = [f"{each.upper()} {report.nodeid}" for each in ("failed", "error") for report in stats.get(each, ())]
        Path(summary).write_text("".join(f"{line}\n" for line in [*skips, counts or "no test ran", *bad]))


def _reason(report: pytest.TestReport) -> str:
    """Return why a test or a module was skipped."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")
