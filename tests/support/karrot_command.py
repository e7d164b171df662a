"""Runs a command of Karrot in this process."""

from click.testing import CliRunner, Result

from karrot.cli import main


def run_karrot(*arguments: str, env: dict[str, str] | None = None, typed: str = "") -> Result:
    """Its result; an exception that no command expects is raised."""
    return CliRunner().invoke(main, list(arguments), env=env, input=typed, catch_exceptions=False)
