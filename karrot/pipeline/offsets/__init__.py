"""Ingests Kafka's ``__consumer_offsets`` into the tables ``commits``, ``members`` and ``ends``."""
