"""From archive segments or a Kafka topic to the tables `events` and `partitions`."""
