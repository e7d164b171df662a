"""Declares every setting, and loads the settings for a start or a reload.

`options.Settings` declares the settings, `loading.load` reads and checks them, and `types` has the kinds of values.
"""
