"""Applies Burrow's rules to past commits and log ends, with several sets of settings at once."""
