"""Burrow's windows of commits, and its rules for them, in arrays. ``replay`` and ``evaluate`` share them."""
