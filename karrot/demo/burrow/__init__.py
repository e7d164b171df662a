"""A fake Burrow: Burrow's verdicts, notifier and REST API for a simulated Kafka."""
