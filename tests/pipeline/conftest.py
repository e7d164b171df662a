"""Starts the one SparkSession of the tests, and lets the tests that need it come first."""

import os
import warnings
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.spark_session import SparkUnavailable, session

_HERE = Path(__file__).parent

_SMALL_AND_QUICK_TO_START = {
    "spark.sql.shuffle.partitions": "1",
    # To verify the byte code of Spark's classes, which pip checked, costs two CPU seconds at each start.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    "spark.driver.memory": "3g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.minPartitionNum": "1",
    # Each column would look through the stack of Python's calls for where it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # To compile a query takes many times as long as to interpret it for the few rows of a test.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A session that ends with the process: pyspark's JVM stops when its parent's pipe closes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return session("local[1]", _SMALL_AND_QUICK_TO_START, name=f"karrot-tests-{os.getpid()}")
    except SparkUnavailable as why:
        pytest.skip(str(why))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests come first, and may take their time.

    With ``--dist worksteal`` the first process begins with them, and what is stolen from a process is the end of its
    share: so one of them starts a JVM, and no other.
    """
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: _HERE not in item.path.parents)
