"""``karrot simulate``: runs scaling recipes on a recorded lag."""

from karrot.cli.simulate import simulate

__all__ = ["COMMANDS"]

COMMANDS = (simulate.simulate,)
