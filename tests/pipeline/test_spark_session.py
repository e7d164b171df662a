import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from karrot.pipeline.spark_session import RUNTIME, SparkUnavailable, has_logging, left_to_us, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_logs_only_errors_by_our_own_configuration(spark: "SparkSession") -> None:
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    used = log4j.LogManager.getContext(False).getConfiguration()
    assert Path(used.getConfigurationSource().getLocation()).name == "log4j2.properties"
    assert used.getRootLogger().getLevel().name() == "ERROR"


def test_a_users_logging_configuration_is_kept(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    assert not has_logging({"SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": str(conf)}, {})
    (conf / "log4j2.properties").touch()
    assert has_logging({"SPARK_HOME": str(tmp_path)}, {})
    assert has_logging({"SPARK_CONF_DIR": str(conf)}, {})
    assert has_logging({}, {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine.xml"})
    assert not has_logging({}, {"spark.driver.extraJavaOptions": "-Xss4m"})


def test_days_are_in_utc_whatever_time_zone_the_user_chose() -> None:
    assert left_to_us(lambda _key: False) == RUNTIME
    assert left_to_us(lambda _key: True) == {"spark.sql.session.timeZone": "UTC"}


_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark-submit" / "karrot_pipeline.py"


def test_under_spark_submit_stdout_is_only_the_result_and_the_log_is_short(tmp_path: Path) -> None:
    try:
        require_java()
    except SparkUnavailable as why:
        pytest.skip(str(why))
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "LOG4J_"))}
    programs = Path(sys.executable).parent
    environ = {
        **own,
        "PATH": f"{programs}{os.pathsep}{own['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    command: list[str | Path] = [
        *(programs / "spark-submit", "--master", "local[1]", "--driver-java-options", quick),
        *(_EXAMPLE, "compact", "--tables", tmp_path),
    ]
    log = tmp_path.with_name("stderr.log")
    with log.open("wb") as stderr, subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=stderr) as job:
        assert job.stdout is not None
        result = job.stdout.readline()
        logged = log.read_bytes()
        assert job.stdout.read() == b""
    assert (job.returncode, result) == (0, b"merged 0 files into 0, dropped 0 days\n")
    assert log.read_bytes() == logged, "the result must be the last printed line"
    assert b" INFO SparkContext: Running Spark" in logged
    assert b"Successfully stopped SparkContext" not in logged  # logged at INFO once there is a session
