"""``karrot groups``, ``status`` and ``lag``."""
