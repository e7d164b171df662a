"""Serves the HTML pages: all groups, one group, refused bodies, runbooks. They work without JavaScript."""
