"""Finds stale partitions in the stream of commits and log ends, and sends alerts."""
