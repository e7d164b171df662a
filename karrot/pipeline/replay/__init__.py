"""Applies several sets of Burrow's rules to past commits and log ends: `job.replay`."""
