"""Generates days of simulated history: the archive that a service would have written, with planted incidents."""
