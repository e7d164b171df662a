"""``karrot groups``, ``status`` and ``lag``: what Burrow and Kafka know, as ``kafka-consumer-groups`` shows it."""

from karrot.cli.groups import groups, lag, status

__all__ = ["COMMANDS"]

COMMANDS = (groups.groups, status.status, lag.lag)
