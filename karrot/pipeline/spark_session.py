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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA: Final = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHED_BY_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"
_LOGGING: Final = Path(__file__).resolve().with_name("log4j2.properties")

_LOG_LEVEL: Final = "spark.log.level"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_OF_QUERIES: Final = "spark.sql."
"""The settings with this prefix take effect when a query starts. A submitted command can still set them."""

_STATIC: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    _LOG_LEVEL: "ERROR",
    # Spark 4 raises each analysis error. It would also log the error, as a line of JSON with the whole stack.
    "spark.log.structuredLogging.enabled": "false",
    # The classes that Spark generates for queries. One derive has more than 100 (the default), and a process that
    # stays would compile all of them again for each derive.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Otherwise each column inspects Python's call stack to record where it was made.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

_S3_CREDENTIALS: Final[Mapping[str, str]] = {
    # Hadoop's own list (core-default.xml of 3.5.0), and the role of a Kubernetes service account, which it lacks.
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,"
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
}
"""Where S3A looks for credentials, if no configuration of Hadoop (``HADOOP_CONF_DIR``) says it."""

_JVM_OPTIONS: Final = (
    # Most code of a query runs only for seconds. With HotSpot's own thresholds, its second compiler (C2) takes a third
    # of the CPU time of a small derive. These are ten times as high.
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000 "
    # Spark loads more classes than HotSpot expects: it collects garbage each time that this space has to grow.
    "-XX:MetaspaceSize=256m"
)
"""Options of a local JVM. ``spark.driver.extraJavaOptions`` comes after them, and so overrides them."""

_STATIC_IF_LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.defaultJavaOptions": _JVM_OPTIONS,
    # A stage can have tasks on cached rows and tasks on files of HDFS. A local master does not look again when the
    # time to wait for a better place is over, so it would wait forever (SPARK-4939).
    "spark.locality.wait": "0s",
}

RUNTIME: Final[Mapping[str, str]] = {
    _TIME_ZONE: "UTC",
    # Spark keeps the plan of every batch as a string, and our arrays of numbers make this string long.
    "spark.sql.maxPlanStringLength": "20000",
    # Lines are long: 10,000 lines (the default) are an array of 30 MB, and Spark holds several arrays at a time.
    "spark.sql.inMemoryColumnarStorage.batchSize": "1000",
    # Rows are kept on the local disk during a batch. To compress them costs twice the CPU of decoding them.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Segments are small. With this cost per file, one task reads many segments and writes one file of a table.
    "spark.sql.files.openCostInBytes": "65536",
}
"""Settings that the pipeline uses unless ``--conf`` or spark-submit sets them. The time zone is always UTC."""

LOCAL: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "4",
    # By default, Spark starts a job to list more than 32 paths. A listing on the driver costs a 16th of that job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
"""Further default settings, only for ``--master local``. On a cluster, Spark's own values use all executors."""


class SettingTooLate(ValueError):  # noqa: N818 (says when the setting came)
    """Under spark-submit, a setting behind the command has no effect. The message says where to write it."""


class SparkUnavailable(RuntimeError):  # noqa: N818 (names the state of the machine)
    """Spark cannot run on this machine. The message says what to install."""


def session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    name: str = "karrot",
    environ: MutableMapping[str, str] | None = None,
) -> "SparkSession":
    """Return spark-submit's session if spark-submit started this process, else a new one (by default ``local[*]``).

    ``conf`` overrides the settings of this module. pyspark reads ``environ`` (by default this process's), so this
    function adds the variables that pyspark needs. Raises `SparkUnavailable` and `SettingTooLate`.
    """
    environ = os.environ if environ is None else environ  # as a default, help() would print its secrets
    asked = dict(conf or {})
    submitted = is_submitted(environ)
    if submitted:
        _require_in_time(master, asked)
    else:
        require_pyspark()
        require_java(environ)
        # Without this variable, the workers can run another python3 that has no pyarrow.
        environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if (master or "local").startswith("local"):
            environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if _LOGGING.exists() and not has_logging(environ, asked):  # Java cannot read a file in karrot-burrow.zip
            environ.setdefault("LOG4J_CONFIGURATION_FILE", _LOGGING.as_uri())
        if "HADOOP_CONF_DIR" not in environ:
            asked = {**_S3_CREDENTIALS, **asked}
    return _built(master, asked, name=name, submitted=submitted)


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    return _LAUNCHED_BY_SUBMIT in environ


def _require_in_time(master: str | None, asked: Mapping[str, str]) -> None:
    """Refuse settings that belong before the script. Spark would ignore some of them without a message."""
    late = [f"--conf {key}=…" for key in asked if not key.startswith(_OF_QUERIES)]
    if options := " ".join(late if master is None else ["--master …", *late]):
        raise SettingTooLate(
            f"{options} behind the command comes too late, because spark-submit has already started Spark: "
            f"write spark-submit {options} karrot_pipeline.py …"
        )


def _built(master: str | None, asked: Mapping[str, str], *, name: str, submitted: bool) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().appName(name)
    if_local = _STATIC_IF_LOCAL if (master or "local").startswith("local") else {}
    for key, value in (asked if submitted else {**_STATIC, **if_local, **asked}).items():
        builder = builder.config(key, value)
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    spark = builder.getOrCreate()
    given = spark.sparkContext.getConf()
    if submitted and not given.contains(_LOG_LEVEL) and _logs_by_default(spark):
        spark.sparkContext.setLogLevel(_STATIC[_LOG_LEVEL])
    for key, value in left_to_us(given.contains, spark.sparkContext.master or "").items():
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


def left_to_us(is_given: Callable[[str], bool], master: str) -> dict[str, str]:
    """Return the settings of `RUNTIME` and `LOCAL` that the user did not set, and always the time zone.

    Many clusters have a local time zone, which would put rows into the wrong day.
    """
    ours = {**RUNTIME, **(LOCAL if master.startswith("local") else {})}
    return {key: value for key, value in ours.items() if key == _TIME_ZONE or not is_given(key)}


def has_logging(environ: Mapping[str, str], asked: Mapping[str, str]) -> bool:
    """Whether Spark has a logging configuration already, in a file or in an option of Java."""
    home = environ.get("SPARK_HOME")
    places = (environ.get("SPARK_CONF_DIR"), home and f"{home}/conf")
    has_file = any(place and any(Path(place).glob("log4j2*.properties")) for place in places)
    return has_file or "log4j" in asked.get("spark.driver.extraJavaOptions", "")


def require_pyspark() -> None:
    """Raise `SparkUnavailable` if PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailable(
            "The pipeline runs on PySpark, which is not installed: pip install 'karrot-burrow[spark]'."
        )


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
