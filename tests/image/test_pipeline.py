"""The image target with Spark runs the pipeline."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.image.buildah import ROOT, Image
from support.image.runc_container import USER, Container

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]

_PINS = ROOT / "requirements" / "spark-jars" / "sha256.txt"
_JOB = """
from pyspark.sql import SparkSession
import duckdb

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(7).write.parquet("/data/rows")
print("rows", duckdb.sql("select count(*) from '/data/rows/*.parquet'").fetchall()[0][0])
hadoop = spark._jvm.org.apache.hadoop.fs
conf = spark._jsc.hadoopConfiguration()
conf.set("fs.s3a.access.key", "nobody")
conf.set("fs.s3a.secret.key", "none")
conf.set("fs.s3a.endpoint", "http://127.0.0.1:1")
conf.set("fs.s3a.endpoint.region", "eu-west-1")
print("file system", hadoop.Path("s3a://lag/").getFileSystem(conf).getScheme())
try:
    spark.readStream.format("kafka").option("subscribe", "lag").load()
except Exception as error:
    print("kafka", str(error).splitlines()[0])
"""


def test_the_image_writes_a_table_that_duckdb_reads(
    pipeline: Image, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    config = pipeline.config | {"Entrypoint": ["python"], "Cmd": ["-c", _JOB]}
    with Container(pipeline.root, config, tmp_path / "job", data, {}, temporary=("/tmp",)) as job:
        assert job.wait(300) == 0, job.said.read_text()
    said = job.said.read_text()
    assert "rows 7\n" in said
    assert "file system s3a\n" in said
    assert "kafka Option 'kafka.bootstrap.servers' must be specified" in said, "Spark has its connector"
    record_property("figures", f"the pipeline's image was built in {pipeline.build_seconds:.0f} s")


def test_the_image_has_the_jars_for_s3_and_kafka(pipeline: Image) -> None:
    [jars] = pipeline.root.glob("opt/karrot/lib/python3*/site-packages/pyspark/jars")
    wanted = {line.split()[1] for line in _PINS.read_text().splitlines()}
    assert wanted - {jar.name for jar in jars.iterdir()} == set()
    assert not [*jars.glob("bundle-*.jar")], "the AWS SDK's bundle has 686 MB"


def test_the_image_prints_the_list_of_jobs_by_default(pipeline: Image) -> None:
    assert (pipeline.config["Entrypoint"], pipeline.config["Cmd"]) == (["karrot"], ["pipeline", "--help"])
    assert pipeline.config["User"] == f"{USER}:{USER}"
    assert "Healthcheck" not in pipeline.config, "the image of the jobs must have no health check"
