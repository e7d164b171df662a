"""Polls Kafka's Admin API, applies Burrow's rules to the groups, and makes the events that Burrow would post."""
