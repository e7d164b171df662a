"""``karrot groups``, ``status`` and ``lag``: print consumer groups as Burrow and Kafka report them."""
