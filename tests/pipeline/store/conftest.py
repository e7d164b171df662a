"""Gives the tests a directory on each kind of file system."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(params=["local", "file URL", "cluster's file system"])
def directory(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A directory of each kind of file system that a machine without servers has."""
    if request.param != "cluster's file system":
        yield str(tmp_path) if request.param == "local" else tmp_path.as_uri()
        return
    hadoop, cluster = spark.sparkContext._jsc.hadoopConfiguration(), tmp_path.name.replace("_", "-")
    hadoop.set(f"fs.viewfs.mounttable.{cluster}.link./lag", tmp_path.as_uri())
    yield f"viewfs://{cluster}/lag"
    hadoop.unset(f"fs.viewfs.mounttable.{cluster}.link./lag")
