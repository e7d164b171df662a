"""Spark itself parses the commands of the documentation for clusters that the tests do not have."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from karrot.cli import main
from karrot.cli.pipeline import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "spark-submit"
_NAMES = ("pipeline.md", "pipeline-sizing.md", "pipeline-places.md", "evaluate.md")
_PAGES = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in _NAMES)
_BLOCKS = re.findall(r"^```bash\n(.*?)^```", _PAGES, re.MULTILINE | re.DOTALL)
_SUBMITTED = re.compile(r"^spark-submit (?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_COMMANDS = [shlex.split(found.replace("\\\n", " "))[1:] for block in _BLOCKS for found in _SUBMITTED.findall(block)]
_SETTINGS = (
    "org.apache.spark.internal.config.package$",
    "org.apache.spark.internal.config.Python$",
    "org.apache.spark.deploy.k8s.Config$",
    "org.apache.spark.deploy.yarn.config.package$",
)


def submitted(spark: "SparkSession", command: list[str]) -> Any:
    """Parse a command as ``spark-submit`` does; raises an error for an option that Spark does not know."""
    jvm: Any = spark.sparkContext._jvm
    environment = jvm.PythonUtils.toScalaMap({"HADOOP_CONF_DIR": "/etc/hadoop/conf"})
    return jvm.org.apache.spark.deploy.SparkSubmitArguments(jvm.PythonUtils.toSeq(command), environment)


def test_spark_parses_the_commands_for_kubernetes_yarn_and_emr(spark: "SparkSession") -> None:
    parsed = [submitted(spark, command) for command in _COMMANDS]
    assert [(each.master().partition(":")[0], each.deployMode()) for each in parsed] == [
        ("k8s", "cluster"),
        ("yarn", "client"),
        ("yarn", "client"),
        ("k8s", "cluster"),
    ]
    for each, command in zip(parsed, _COMMANDS, strict=True):
        script = next(word for word in command if word.endswith("karrot_pipeline.py"))
        job = command[command.index(script) + 1]
        assert each.primaryResource().endswith(script)
        assert job in pipeline.commands
        above = main.make_context("karrot", ["pipeline"])  # a command takes its option for help from the command above
        pipeline.commands[job].make_context(job, command[command.index(script) + 2 :], parent=above)  # or raises


def test_emr_serverless_and_spark_take_the_job_of_the_page(spark: "SparkSession") -> None:
    [block] = [block for block in _BLOCKS if "start-job-run" in block]
    words = shlex.split(block.replace("\\\n", " "))
    options = dict(zip(words[3::2], words[4::2], strict=True))
    driver = json.loads(options["--job-driver"])
    asked = {
        "applicationId": options["--application-id"],
        "executionRoleArn": options["--execution-role-arn"],
        "clientToken": "once",
        "jobDriver": driver,
    }
    service = botocore.session.get_session().get_service_model("emr-serverless")
    shape = service.operation_model("StartJobRun").input_shape
    assert shape is not None
    wrong = ParamValidator().validate(asked, shape)
    assert not wrong.has_errors(), wrong.generate_report()
    job = driver["sparkSubmit"]
    arguments = job["entryPointArguments"]
    parsed = submitted(spark, [*shlex.split(job["sparkSubmitParameters"]), job["entryPoint"], *arguments])
    assert parsed.primaryResource() == "s3://lag/code/karrot_pipeline.py"
    assert parsed.archives() == "s3://lag/code/environment.tar.gz#environment"
    above = main.make_context("karrot", ["pipeline"])
    pipeline.commands[arguments[0]].make_context(arguments[0], arguments[1:], parent=above)


def test_the_page_has_each_command_for_a_standalone_cluster() -> None:
    [block] = [block for block in _BLOCKS if "spark://spark:7077" in block]
    assert set(re.findall(r"karrot_pipeline\.py (\w+)", block)) == pipeline.commands.keys()


def test_spark_knows_each_setting_of_the_commands(spark: "SparkSession") -> None:
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for settings in _SETTINGS:  # a setting registers itself when its class is loaded
        jvm.java.lang.Class.forName(settings, True, loader)
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    keys = {word.partition("=")[0] for command in _COMMANDS for word in command if re.match(r"spark\.[\w.]+=", word)}
    assert len(keys) > len(_COMMANDS)
    assert {key for key in keys if known.findEntry(key) is None} == set()
    assert known.findEntry("spark.executor.no.such.setting") is None


def test_on_kubernetes_spark_sends_the_script_and_its_arguments_to_a_pod(spark: "SparkSession") -> None:
    jvm: Any = spark.sparkContext._jvm
    commands = [each for each in _COMMANDS if "k8s:" in " ".join(each)]
    assert len(commands) == 2
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    submit = jvm.org.apache.spark.deploy.SparkSubmit()
    for command in commands:
        prepared = submit.prepareSubmitEnvironment(submitted(spark, command), nothing)
        assert prepared._4() == "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication"
        assert prepared._1().toString().startswith("List(--primary-py-file, local:///opt/karrot/karrot_pipeline.py,")


@pytest.mark.parametrize("block", _BLOCKS)
def test_bash_parses_each_command_of_the_page(block: str) -> None:
    parsed = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")


_POD = {
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "derive-exec-3",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} of 11" for number in range(11)},
}
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


@pytest.mark.parametrize(
    ("arguments", "program", "expected"),
    [
        (
            ["driver", "--class", "Main", "local:///k.py", "derive"],
            "spark-submit",
            ["--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.7", "--class", "Main"],
        ),
        (
            ["executor"],
            "java",
            [*(f"-Dnumber={number} of 11" for number in range(11)), "-Xms2g", "-Xmx2g", "-cp"],
        ),
        (["pipeline", "derive"], "karrot", ["pipeline", "derive"]),
    ],
)
def test_the_image_for_kubernetes_starts_what_spark_asks_for(
    arguments: list[str], program: str, expected: list[str], tmp_path: Path
) -> None:
    for name in ("spark-submit", "java", "karrot"):
        (tmp_path / name).write_text('#!/bin/sh\necho "${0##*/}"\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python").write_text("#!/bin/sh\necho /opt/pyspark\n")
    (tmp_path / "python").chmod(0o755)
    started = subprocess.run(
        ["bash", EXAMPLES / "kubernetes-entrypoint.sh", *arguments],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **_POD},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert started[: len(expected) + 1] == [program, *expected]
    if program == "java":
        assert started[len(expected) + 1 :][:2] == ["/opt/spark/conf:/opt/pyspark/jars/*", _BACKEND]
        assert "--podName derive-exec-3" in " ".join(started)


def test_hadolint_finds_nothing_in_the_image_for_kubernetes() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([hadolint, EXAMPLES / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


_IMPORTS = """
import sys
from importlib import import_module
from importlib.metadata import packages_distributions
on_workers, modules = sys.argv[1].split(), sys.argv[2:]
sys.modules.update(dict.fromkeys(packages_distributions().keys() - {*on_workers}))  # so that they cannot be imported
[import_module(each) for each in modules]
"""


def test_the_python_of_workers_has_all_packages_that_the_functions_in_it_import() -> None:
    pinned = re.findall(r"^(\w+)==", (ROOT / "requirements" / "spark-worker.txt").read_text(), re.MULTILINE)
    sent = ("evaluate.bucket_verdicts", "offsets.members", "replay.partition_status_changes")
    modules, packages = (f"karrot.pipeline.{each}" for each in sent), " ".join(["karrot", "pyspark", "py4j", *pinned])
    command = [sys.executable, "-c", _IMPORTS, packages, *modules]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
