"""Deliver events from the log to the reporters."""
