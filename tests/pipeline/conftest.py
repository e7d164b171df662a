from typing import TYPE_CHECKING

import pytest

from support.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    return spark_session()
