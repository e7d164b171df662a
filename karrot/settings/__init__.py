"""Declares every setting, and loads the settings for a start or a reload.

`options.Settings` declares them, `loading.load` reads and checks them, and `types` has the kinds of values.
"""
