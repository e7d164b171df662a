"""``karrot groups``, ``status`` and ``lag``."""

from karrot.cli.groups import run

__all__ = ["COMMANDS"]

COMMANDS = run.COMMANDS
