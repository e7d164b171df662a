"""Runs a command of Karrot in this process."""

from click.testing import CliRunner, Result

from karrot.cli import main


def run_karrot(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run a command and return its result; an exception that the command does not handle is raised."""
    return CliRunner().invoke(main, list(arguments), env=env, catch_exceptions=False)
