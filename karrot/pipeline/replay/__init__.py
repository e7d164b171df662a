"""Burrow's rules over the commits and log ends that were kept, under several settings at once."""
