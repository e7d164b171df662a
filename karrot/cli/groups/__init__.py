"""``karrot groups``, ``status`` and ``lag``: print what Burrow and Kafka know about consumer groups."""

from karrot.cli.groups import groups, lag, status

__all__ = ["COMMANDS"]

COMMANDS = (groups.groups, status.status, lag.lag)
