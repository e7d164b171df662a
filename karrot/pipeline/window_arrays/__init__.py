"""Judges Burrow's windows of commits in arrays, and parses rule sets. ``replay`` and ``evaluate`` use both."""
