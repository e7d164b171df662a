"""The pinned jars for S3 and Kafka fit the PySpark of the tests."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

JARS = Path(__file__).resolve().parents[1] / "requirements" / "spark-jars"
PINS = {name: digest for digest, name in (line.split() for line in (JARS / "sha256.txt").read_text().splitlines())}


def test_every_jar_is_pinned_by_a_hash() -> None:
    assert list(PINS) == sorted(PINS)
    assert [name for name, digest in PINS.items() if not re.fullmatch("[0-9a-f]{64}", digest)] == []
    for pom in JARS.glob("*/pom.xml"):
        for artifact, wanted in re.findall(r"<artifactId>(.+?)</artifactId>\s*<version>([^<]{2,})<", pom.read_text()):
            assert f"{artifact}-{wanted}.jar" in PINS


def test_the_jars_are_of_the_versions_of_pyspark_and_of_its_hadoop() -> None:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        pytest.skip("PySpark is not installed")
    [hadoop] = (Path(found.origin).parent / "jars").glob("hadoop-client-api-*.jar")
    assert hadoop.name.replace("client-api", "aws") in PINS
    assert f"spark-sql-kafka-0-10_2.13-{version('pyspark')}.jar" in PINS
