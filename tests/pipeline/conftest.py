"""Starts the one SparkSession of the tests, and runs the tests that need it first."""

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.spark_session import SparkUnavailable, session

_HERE = Path(__file__).parent

_SMALL_AND_QUICK_TO_START = {
    "spark.sql.shuffle.partitions": "1",
    # Bytecode verification of Spark's classes costs two CPU seconds per start; pip has already checked the files.
    # With the small code cache of the first compiler alone, HotSpot would sweep it, and compile the same code again.
    # A heap that begins small is collected whole each time that it has to grow.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-Xms1g -Xmn400m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    "spark.driver.memory": "3g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.minPartitionNum": "1",
    # Otherwise each column inspects Python's call stack to record where it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # For the few rows of a test, compiling a query takes many times as long as interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """Start a session that ends with the process: pyspark's JVM stops when its parent's pipe closes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spark = session("local[1]", _SMALL_AND_QUICK_TO_START, name=f"karrot-tests-{os.getpid()}")
    except SparkUnavailable as why:
        pytest.skip(str(why))
    _remember_classes(spark)
    # Otherwise Spark walks through the stack for each RDD, to record where it was made: a twentieth of the CPU time.
    for form in ("short", "long"):
        spark.sparkContext.setLocalProperty(f"callSite.{form}", "tests")
    return spark


def _remember_classes(spark: SparkSession) -> None:
    """Keep the classes that pyspark uses for each column. Otherwise the JVM looks for each of them in 300 jars."""
    jvm: Any = spark.sparkContext._jvm
    for name in ("functions", "PythonSQLUtils", "PythonUtils"):
        setattr(jvm, name, getattr(jvm, name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put Spark's tests first, and give them a longer timeout.

    With ``--dist worksteal`` the first process begins with them, and other processes steal from the end of its share.
    So only one process starts a JVM.
    """
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: _HERE not in item.path.parents)
