import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from karrot.pipeline.spark_session import (
    LOCAL,
    RUNTIME,
    SettingTooLate,
    SparkUnavailable,
    has_logging,
    left_to_us,
    require_java,
    session,
)
from karrot.pipeline.stream.record_sources import CONNECTOR, ConnectorMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


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
    assert left_to_us(lambda _key: False, "local[2]") == {**RUNTIME, **LOCAL}
    assert left_to_us(lambda _key: True, "local[2]") == {"spark.sql.session.timeZone": "UTC"}


def test_on_a_cluster_spark_chooses_the_number_of_shuffle_partitions() -> None:
    assert left_to_us(lambda _key: False, "spark://spark:7077") == RUNTIME
    assert RUNTIME.keys().isdisjoint(LOCAL)
    assert "spark.sql.shuffle.partitions" in LOCAL


def test_a_local_jvm_compiles_late_and_keeps_the_code_of_queries(spark: "SparkSession") -> None:
    given = spark.sparkContext.getConf()
    assert "-XX:Tier4CompileThreshold=" in given.get("spark.driver.defaultJavaOptions", "")
    assert spark.conf.get("spark.sql.codegen.cache.maxEntries") == "2000"


_SUBMITTED = {"PYSPARK_GATEWAY_PORT": "1"}


@pytest.mark.parametrize(
    ("master", "conf", "named"),
    [
        (None, {"spark.driver.memory": "4g", "spark.sql.adaptive.enabled": "false"}, "--conf spark.driver.memory=…"),
        (None, {"spark.jars.packages": "a:b:1"}, "--conf spark.jars.packages=…"),
        ("yarn", {"spark.executor.cores": "2"}, "--master … --conf spark.executor.cores=…"),
    ],
)
def test_a_setting_that_comes_too_late_for_spark_submit_is_refused(
    master: str | None, conf: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingTooLate) as refused:
        session(master, conf, environ={**_SUBMITTED})
    assert str(refused.value) == (
        f"{named} behind the command comes too late, because spark-submit has already started Spark: "
        f"write spark-submit {named} karrot_pipeline.py …"
    )


def test_a_missing_connector_is_added_by_an_option_of_the_program_that_started_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}"
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert f"add --conf spark.jars.packages={package}" in str(ConnectorMissing())
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert f"give spark-submit --packages {package} before the script" in str(ConnectorMissing())


@pytest.mark.parametrize(
    ("spark", "connector"), [("4.0.1", "4.0.1"), ("4.3.0", CONNECTOR), ("4.10.0", CONNECTOR), ("4.2.0.dev1", CONNECTOR)]
)
def test_only_a_published_connector_is_named(monkeypatch: pytest.MonkeyPatch, spark: str, connector: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", spark)
    assert f"spark-sql-kafka-0-10_2.13:{connector}," in str(ConnectorMissing())


def test_the_extra_installs_no_spark_without_a_published_connector() -> None:
    extras = tomllib.loads(_PYPROJECT.read_text())["project"]["optional-dependencies"]
    [spark] = [each for each in extras["spark"] if each.startswith("pyspark")]
    assert spark.endswith(f"<={CONNECTOR}")


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
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    command: list[str | Path] = [
        *(
            programs / "spark-submit",
            "--master",
            "local[1]",
            "--driver-java-options",
            quick,
            "--conf",
            "spark.ui.enabled=false",
        ),
        *(_EXAMPLE, "run", "--once", "--only=compact", "--tables", tmp_path),
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
