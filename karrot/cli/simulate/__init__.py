"""``karrot simulate``: runs scaling recipes on a recorded lag."""
