"""``karrot simulate``."""

from karrot.cli.simulate import simulate

__all__ = ["COMMANDS"]

COMMANDS = (simulate.simulate,)
