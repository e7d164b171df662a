"""Writes events from archive segments or a Kafka topic into tables: `job.Ingest` reads what `event_sources` has."""
