"""Prepares connections to a Kafka cluster: client properties and tokens. It imports no Kafka client library."""
