"""``karrot simulate``: simulates scaling recipes on a recorded lag."""
