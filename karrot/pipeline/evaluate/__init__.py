"""Judges consumer groups live from ``__consumer_offsets`` (`job.Evaluate`), and sends them (`verdict_destinations`)."""
