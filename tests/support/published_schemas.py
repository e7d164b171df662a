"""Validates files against the schemas that check-jsonschema ships, without the network."""

from pathlib import Path

from check_jsonschema import main
from click.testing import CliRunner


def assert_matches_schema(schema: str, *files: Path) -> None:
    """Fail with the errors of the files against the schema of that name."""
    told = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", *map(str, files)])
    assert told.exit_code == 0, told.output
