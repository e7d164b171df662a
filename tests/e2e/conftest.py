"""The real servers, each set of them started by the first test that asks for it and ended with the session."""

from collections.abc import Callable, Generator, Iterator

import pytest
from pyspark.sql import SparkSession

from e2e.figures import Figures, told
from e2e.stack.burrow import NO_BURROW, burrow_binary
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import NEWEST_KAFKA, Parts, Stack, running
from karrot.pipeline.spark_session import session


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """For what a test measures by the way."""
    return Figures(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the figures of the tests that passed, also of those that ran in another process."""
    for line in (line for report in terminalreporter.stats.get("passed", ()) for line in told(report.user_properties)):
        terminalreporter.line(line)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three brokers of Kafka 4.1.2, ZooKeeper, Prometheus."""
    yield from started(Parts(brokers=3), tmp_path_factory)


@pytest.fixture(scope="session")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The same with one broker."""
    yield from started(Parts(), tmp_path_factory)


@pytest.fixture(scope="session")
def newest_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One broker of the newest Kafka."""
    yield from started(Parts(kafka_version=NEWEST_KAFKA), tmp_path_factory)


@pytest.fixture(scope="session")
def kafka(newest_kafka: Stack) -> Kafka:
    """Its broker."""
    return newest_kafka.kafka


@pytest.fixture(scope="session")
def kafka_spark() -> Iterator[SparkSession]:
    """Spark with its Kafka connector."""
    jars = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.driver.memory": "1g"}
    spark = session("local[2]", {"spark.jars": jars, **quick})
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def burrow_bin() -> str:
    """The real Burrow; where there is none the test is skipped."""
    return burrow_binary() or pytest.skip(NO_BURROW)


def started(parts: Parts, directories: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(parts, directories.mktemp("stack"), Downloads(default_cache())) as found:
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the ends of the logs of the servers it used."""
    report = yield
    if report.failed:
        stacks = [each for each in item.funcargs.values() if isinstance(each, Stack)]
        report.sections += [("the servers' logs", each.servers.tails()) for each in stacks]
    return report
