"""Runs the real service on simulated Kafka clusters and a fake Burrow, and reports to a fake CloudWatch."""
