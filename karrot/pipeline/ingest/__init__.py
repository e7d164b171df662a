"""Writes events from archive segments or a Kafka topic into the tables ``events`` and ``partitions``."""
