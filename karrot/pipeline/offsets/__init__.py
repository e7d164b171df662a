"""Writes Kafka's ``__consumer_offsets`` and log ends into the tables ``commits``, ``members`` and ``ends``."""
