"""Polls Kafka's Admin API, judges the groups by Burrow's rules and makes the events that Burrow would post."""
