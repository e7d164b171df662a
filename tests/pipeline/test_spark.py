from pathlib import Path
from typing import TYPE_CHECKING

from karrot.pipeline.spark import RUNTIME, has_logging, left_to_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_says_errors_alone_by_our_own_configuration(spark: "SparkSession") -> None:
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    used = log4j.LogManager.getContext(False).getConfiguration()
    assert Path(used.getConfigurationSource().getLocation()).name == "log4j2.properties"
    assert used.getRootLogger().getLevel().name() == "ERROR"


def test_what_somebody_chose_to_log_by_stays(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    assert not has_logging({"SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": str(conf)}, {})
    (conf / "log4j2.properties").touch()
    assert has_logging({"SPARK_HOME": str(tmp_path)}, {})
    assert has_logging({"SPARK_CONF_DIR": str(conf)}, {})
    assert has_logging({}, {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine.xml"})
    assert not has_logging({}, {"spark.driver.extraJavaOptions": "-Xss4m"})


def test_a_day_is_one_of_utc_whatever_else_somebody_chose() -> None:
    assert left_to_us(lambda _key: False) == RUNTIME
    assert left_to_us(lambda _key: True) == {"spark.sql.session.timeZone": "UTC"}
