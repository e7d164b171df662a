from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.spark_session import SparkUnavailable
from support.pipeline.local_spark import spark_session

_HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    try:
        return spark_session()
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
