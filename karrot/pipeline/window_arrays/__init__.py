"""Judges Burrow's windows of commits in arrays: `windows`. ``replay`` and ``evaluate`` share them and the rule sets."""
