"""Declares every setting, and loads the settings for a start or a reload."""
