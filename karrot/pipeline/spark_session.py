"""Makes the SparkSession with the settings that the pipeline needs, or says what is missing on this machine."""
# ruff: noqa: PLC0415 (pyspark is an extra; this module reports that it is missing)

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA: Final = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHED_BY_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
_LOGGING: Final = Path(__file__).resolve().with_name("log4j2.properties")

_LOG_LEVEL: Final = "spark.log.level"
_TIME_ZONE: Final = "spark.sql.session.timeZone"

_STATIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        _LOG_LEVEL: "ERROR",
        # Spark 4 raises each analysis error. It would also log the error, as a line of JSON with the whole stack.
        "spark.log.structuredLogging.enabled": "false",
    }
)

RUNTIME: Final[Mapping[str, str]] = MappingProxyType(
    {
        _TIME_ZONE: "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        # By default, Spark starts a job to list more than 32 paths. To list them on the driver costs a 16th of that.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        # Spark keeps the plan of every batch as a text, and our arrays of numbers make this text long.
        "spark.sql.maxPlanStringLength": "20000",
        # Lines are long: 10,000 lines (the default) are an array of 30 MB, and Spark holds several arrays at a time.
        "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
        # Segments are small. With this cost per file, one task reads many segments and writes one file of a table.
        "spark.sql.files.openCostInBytes": "65536",
        # The archive's retention can delete a segment while it is read. Ingest counts the missing lines.
        "spark.sql.files.ignoreMissingFiles": "true",
    }
)
"""Settings that the pipeline uses unless ``--conf`` or spark-submit sets them. The time zone is always UTC."""


class SparkUnavailable(RuntimeError):  # noqa: N818 (names the state of the machine)
    """Spark cannot run on this machine. The message says what to install."""


def session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    name: str = "karrot",
    environ: MutableMapping[str, str] = os.environ,
) -> "SparkSession":
    """Return spark-submit's session if spark-submit started this process, else a new one (by default ``local[*]``).

    ``conf`` overrides the settings of this module. pyspark reads ``environ``, so this function adds the variables that
    pyspark needs. Raises `SparkUnavailable`.
    """
    asked = dict(conf or {})
    submitted = _LAUNCHED_BY_SUBMIT in environ
    if not submitted:
        if importlib.util.find_spec("pyspark") is None:
            raise SparkUnavailable(
                "The pipeline runs on PySpark, which is not installed: pip install 'karrot-burrow[spark]'."
            )
        require_java(environ)
        # Without this variable, the workers can run another python3 that has no pyarrow.
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if (master or "local").startswith("local"):
            environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if not has_logging(environ, asked):
            environ.setdefault("LOG4J_CONFIGURATION_FILE", _LOGGING.as_uri())
    return _built(master, asked, name=name, submitted=submitted)


def _built(master: str | None, asked: Mapping[str, str], *, name: str, submitted: bool) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().appName(name)
    for key, value in (asked if submitted else {**_STATIC, **asked}).items():
        builder = builder.config(key, value)
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    spark = builder.getOrCreate()
    given = spark.sparkContext.getConf()
    if submitted and not given.contains(_LOG_LEVEL) and _logs_by_default(spark):
        spark.sparkContext.setLogLevel("WARN")
    for key, value in left_to_us(given.contains).items():
        spark.conf.set(key, value)
    return spark


def _logs_by_default(spark: "SparkSession") -> bool:
    """Whether a JVM that spark-submit started uses Spark's default logging: hundreds of INFO lines for each command.

    This function asks the JVM, because the configuration can come from spark-submit, environment, Java options or
    classpath.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 (pyspark offers no other way to it)
    used = jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration()
    return str(used.getConfigurationSource().getLocation()).endswith("org/apache/spark/log4j2-defaults.properties")


def left_to_us(is_given: Callable[[str], bool]) -> dict[str, str]:
    """The settings of `RUNTIME` that the user did not set, and always the time zone.

    Many clusters have a local time zone, which would put rows into the wrong day.
    """
    return {key: value for key, value in RUNTIME.items() if key == _TIME_ZONE or not is_given(key)}


def has_logging(environ: Mapping[str, str], asked: Mapping[str, str]) -> bool:
    """Whether Spark has a logging configuration already, in a file or in an option of Java."""
    home = environ.get("SPARK_HOME", "")
    places = (environ.get("SPARK_CONF_DIR"), home and str(Path(home, "conf")))
    has_file = any(place and any(Path(place).glob("log4j2*.properties")) for place in places)
    return has_file or "log4j" in asked.get("spark.driver.extraJavaOptions", "")


def require_java(environ: Mapping[str, str] = os.environ) -> int:
    """Return the major version of Java that Spark would start. Raises `SparkUnavailable` if Java is missing or old."""
    home = environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environ.get("PATH", os.defpath))
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        raise SparkUnavailable(
            f"Spark needs Java {_JAVA} or newer (Debian: default-jre-headless), and {where}: install Java."
        )
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 (the PATH's java)
    found = _JAVA_VERSION.search(output.stderr + output.stdout)
    if found is None or int(found[1]) < _JAVA:
        version = f"is version {found[1]}" if found else "does not print its version"
        raise SparkUnavailable(
            f"Spark needs Java {_JAVA} or newer, and {java} {version}: set JAVA_HOME to a newer Java."
        )
    return int(found[1])
