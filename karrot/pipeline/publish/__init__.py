"""Publishes the stream of events to CloudWatch."""
