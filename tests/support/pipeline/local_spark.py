"""The one SparkSession of a test run's process, small and quick to start."""

import functools
import os
import warnings
from typing import TYPE_CHECKING

from karrot.pipeline.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_session"]


@functools.cache
def spark_session() -> "SparkSession":
    """Ends with the process: pyspark's JVM goes when its parent's pipe closes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return session(
            "local[1]",
            {
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
            },
            name=f"karrot-tests-{os.getpid()}",
        )
