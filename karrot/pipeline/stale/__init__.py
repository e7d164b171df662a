"""Alerts on consumer groups that stopped committing, from the stream of commits."""
