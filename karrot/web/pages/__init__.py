"""Serves the HTML pages: all groups, one group, what was refused, the runbooks. They work without a script."""
