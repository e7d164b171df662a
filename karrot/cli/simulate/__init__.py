"""``karrot simulate``."""
