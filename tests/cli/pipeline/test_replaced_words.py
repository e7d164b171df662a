"""A word of an earlier release prints the new call on standard error, and does it."""

import click
from click.testing import CliRunner, Result

from karrot.cli.pipeline.replaced_words import ReplacedWord


@click.command()
@click.option("--once/--follow")
@click.option("--every", default="15m")
@click.option("--conf", multiple=True)
def run(**asked: object) -> None:
    """Run the steps."""
    click.echo(repr(asked))
    if asked["every"] == "never":
        raise click.exceptions.Exit(3)


@click.group(commands=[run, ReplacedWord("ingest", run, "--once", "--every", "30s")])
def pipeline() -> None:
    """The commands."""


def called(*args: str) -> Result:
    return CliRunner().invoke(pipeline, args, prog_name="karrot pipeline")


def test_it_says_the_new_call_and_does_it() -> None:
    result = called("ingest", "--conf", "spark.app.name=two words")
    assert "is replaced" in result.stderr
    assert "Now: karrot pipeline run --once --every 30s, with the same options\n" in result.stderr
    assert result.stdout == "{'once': True, 'every': '30s', 'conf': ('spark.app.name=two words',)}\n"


def test_an_option_of_the_user_counts_more_than_one_of_the_word() -> None:
    assert "'once': False, 'every': '5s'" in called("ingest", "--follow", "--every=5s").stdout


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


def test_it_shows_no_given_value_because_it_can_be_a_secret() -> None:
    assert "hush" not in called("ingest", "--conf", "spark.hadoop.fs.s3a.secret.key=hush").stderr
