"""Fixtures of the real servers. The first test that needs a set of servers starts it; it ends with the session."""

import re
import shutil
from collections.abc import Callable, Generator, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright
from pyspark.sql import SparkSession

from e2e.figures import Figures, told
from e2e.stack.burrow import NO_BURROW, burrow_binary
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import NEWEST_KAFKA, Parts, Stack, running
from karrot.pipeline.spark_session import session


@pytest.fixture
def own_name(request: pytest.FixtureRequest) -> str:
    """Return the test's name in letters that a topic may have: tests share their servers."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Debian's Chromium, if it is on the PATH."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser looks at the pages: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Return the place for figures that a test measures in passing."""
    return Figures(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the figures of the tests that passed, in this process or in another."""
    for line in (line for report in terminalreporter.stats.get("passed", ()) for line in told(report.user_properties)):
        terminalreporter.line(line)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start three brokers of Kafka 4.1.2, ZooKeeper and Prometheus."""
    yield from started(Parts(brokers=3), tmp_path_factory)


@pytest.fixture(scope="session")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start one broker of Kafka 4.1.2, ZooKeeper and Prometheus."""
    yield from started(Parts(), tmp_path_factory)


@pytest.fixture(scope="session")
def newest_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start one broker of the newest Kafka."""
    yield from started(Parts(kafka_version=NEWEST_KAFKA), tmp_path_factory)


@pytest.fixture(scope="session")
def kafka(newest_kafka: Stack) -> Kafka:
    """Return the broker of the newest Kafka."""
    return newest_kafka.kafka


@pytest.fixture(scope="session")
def kafka_spark() -> Iterator[SparkSession]:
    """Start Spark with its Kafka connector."""
    jars = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
    # With C1 alone, the JVM reserves 48 MB for compiled code. Two derives fill them, and then it compiles nothing more.
    options = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    quick = {"spark.driver.extraJavaOptions": options, "spark.driver.memory": "1g"}
    spark = session("local[2]", {"spark.jars": jars, **quick})
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def burrow_bin() -> str:
    """Return the path of the real Burrow, or skip the test if there is none."""
    return burrow_binary() or pytest.skip(NO_BURROW)


def started(parts: Parts, directories: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(parts, directories.mktemp("stack"), Downloads(default_cache())) as found:
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last lines of the server logs to the report of a failed test."""
    report = yield
    if report.failed:
        stacks = [each for each in item.funcargs.values() if isinstance(each, Stack)]
        report.sections += [("the servers' logs", each.servers.tails()) for each in stacks]
    return report
