"""Derives tables from events, commits and log ends: `job.derive` is the run, and each table has its own module."""
