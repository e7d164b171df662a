"""A word of an earlier release prints the new call on standard error, and does it."""

import shlex

import click
import pytest
from click.testing import CliRunner, Result

from karrot.cli.pipeline.replaced_words import ReplacedWord, taken


@click.command()
@click.option("--once", is_flag=True)
@click.option("--every", default="15m")
@click.option("--conf", multiple=True)
@click.option("--to")
def run(**asked: object) -> None:
    """Run the steps."""
    click.echo(repr(asked))
    if asked["every"] == "never":
        raise click.exceptions.Exit(3)


def written(given: list[str]) -> list[str]:
    follow = taken(given, "--follow", is_flag=True)
    return [*([] if follow else ["--once"]), *given]


@click.group(commands=[run, ReplacedWord("ingest", run, written)])
def pipeline() -> None:
    """The commands."""


def called(*args: str) -> Result:
    return CliRunner().invoke(pipeline, args, prog_name="karrot pipeline")


def new_call(result: Result) -> str:
    assert "is replaced" in result.stderr
    return result.stderr.rpartition("Now: ")[2].rstrip("\n")


def test_it_says_the_new_call_and_does_it() -> None:
    result = called("ingest", "--every", "30s", "--conf", "spark.app.name=two words")
    assert new_call(result) == "karrot pipeline run --once --every 30s --conf 'spark.app.name=two words'"
    assert result.stdout == "{'once': True, 'every': '30s', 'conf': ('spark.app.name=two words',), 'to': None}\n"


def test_the_new_call_does_the_same_as_the_old_word() -> None:
    old = called("ingest", "--follow", "--every=30s", "--to", "a b\n'c'")
    new = called(*shlex.split(new_call(old))[2:])
    assert new.stdout == old.stdout


def test_its_exit_code_and_its_refusal_are_those_of_the_new_command() -> None:
    assert called("ingest", "--every", "never").exit_code == 3
    refused = called("ingest", "--archiv", "x")
    assert refused.exit_code == 2
    assert "Usage: karrot pipeline run" in refused.stderr
    assert "No such option '--archiv'" in refused.stderr


def test_the_help_of_the_old_word_is_that_of_the_new_command() -> None:
    assert called("ingest", "--help").stdout == called("run", "--help").stdout


def test_the_list_of_commands_does_not_show_it() -> None:
    assert "ingest" not in called("--help").stdout


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("--conf", "spark.hadoop.fs.s3a.secret.key=abc=="), "--conf 'spark.hadoop.fs.s3a.secret.key=***'"),
        (("--conf=spark.hadoop.fs.s3a.access.key=AKIA",), "'--conf=spark.hadoop.fs.s3a.access.key=***'"),
        (("--to", "karrot=http://me:hush@karrot:5000,tables"), "--to 'karrot=http://***@karrot:5000,tables'"),
        (("--to", "webhook=https://hooks.example/T0/B1,tables"), "--to 'webhook=https://hooks.example/***,tables'"),
        (("--to", "webhook=HTTPS://hooks.example/T0/B1"), "--to 'webhook=HTTPS://hooks.example/***'"),
        (("--to", "https://hooks.example?key=hush"), "--to 'https://hooks.example?***'"),
        (("--to", "s3a://key:hush@bucket/tables"), "--to 's3a://***@bucket/tables'"),
        (("--to", "s3://bucket/tables"), "--to s3://bucket/tables"),
    ],
)
def test_the_new_call_shows_no_secret_and_does_its_work_with_it(given: tuple[str, ...], shown: str) -> None:
    result = called("ingest", *given)
    assert new_call(result) == f"karrot pipeline run --once {shown}"
    assert given[-1].removeprefix("--conf=") in result.stdout


def test_the_values_of_an_option_are_taken_in_each_form() -> None:
    args = ["--webhook", "http://a", "--once", "--webhook=http://b", "--webhooks", "c"]
    assert taken(args, "--webhook") == ["http://a", "http://b"]
    assert taken(args, "--once", is_flag=True) == [""]
    assert args == ["--webhooks", "c"]
