"""Fakes Burrow: its verdicts, notifier and REST API on a simulated Kafka."""
