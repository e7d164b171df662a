"""Alerts on stale partitions, from the stream of commits and log ends."""
