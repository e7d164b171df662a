"""Replays Burrow's rules over past commits and log ends, under several settings at once."""
