"""Publishes the stream of events to CloudWatch and other destinations."""
