import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from karrot.cli import main


def _ingest(*arguments: str, env: dict[str, str | None]) -> tuple[int, str]:
    ended = CliRunner().invoke(main, ["pipeline", "ingest", "--archive", "a", "--tables", "t", *arguments], env=env)
    return ended.exit_code, ended.stderr


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    assert _ingest(env={"JAVA_HOME": None, "PATH": str(tmp_path), "PYSPARK_GATEWAY_PORT": None}) == (
        2,
        (
            "karrot: Spark needs Java 17 or newer, and there is no java on the PATH: "
            "install a JDK (openjdk-17-jre-headless).\n"
        ),
    )


@pytest.mark.parametrize(
    ("told", "said"), [('openjdk version "11.0.2"', "is version 11"), ("what?", "does not tell its version")]
)
def test_an_old_java_is_refused(tmp_path: Path, told: str, said: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    assert _ingest(env={"JAVA_HOME": str(tmp_path), "PYSPARK_GATEWAY_PORT": None}) == (
        2,
        f"karrot: Spark needs Java 17 or newer, and {java} {said}: set JAVA_HOME to a newer one.\n",
    )


def test_a_setting_of_spark_is_a_pair() -> None:
    code, said = _ingest("--conf", "spark.x", env={})
    assert code == 2
    assert "'spark.x' is not KEY=VALUE" in said


def test_a_machine_without_pyspark_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert _ingest(env={"PYSPARK_GATEWAY_PORT": None}) == (
        2,
        "karrot: The pipeline runs on PySpark, which is not installed: pip install 'karrot[spark]'.\n",
    )
