"""Derives tables from events, commits and log ends, one module per table."""
