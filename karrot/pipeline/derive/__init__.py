"""The tables that are derived from events, commits and log ends, one module per table."""
