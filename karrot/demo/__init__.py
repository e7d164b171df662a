"""Runs the real service with simulated Kafka clusters, a fake Burrow and a fake CloudWatch."""
