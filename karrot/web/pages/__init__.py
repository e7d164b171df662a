"""Serves the HTML pages: all groups, one group, refused bodies, runbooks. No page needs JavaScript."""
