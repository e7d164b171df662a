"""Declares every option, and loads the settings that a start or a reload runs with."""
