"""``karrot groups``, ``status`` and ``lag``: print what Burrow and Kafka know about consumer groups."""
