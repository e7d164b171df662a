"""Derives tables from events, commits and log ends, with one module per table."""
